"""A client that goes away in the middle of a wide request: nothing of the request is kept, and nobody waits for it."""

import gc
from collections.abc import Iterator
from typing import Any

import pytest
from benchmarks.wide_requests import GROUP, WIDE, Stage, fetch_session
from simulation.world.world import World
from tests.unit.node.speaking import create_topic

from cordwood.node.handlers.records.appending import Appending
from cordwood.node.handlers.records.fetching import Fetching
from cordwood.node.requests.request import Request
from cordwood.wire.apis import APIS, ApiKey
from cordwood.wire.widths import max_elements

PARTITIONS = 20
ELEMENTS = 700
STEPS_TAKEN = (1, 3, 9)
A_WHILE_MS = 300


@pytest.fixture(scope="module")
def stage() -> Iterator[tuple[World, Stage]]:
    world = World(seed=1).start()
    topic = create_topic(world, "wide", PARTITIONS)
    for key_type in (0, 1):
        world.ask(ApiKey.FIND_COORDINATOR, 2, key=GROUP, key_type=key_type)
    yield world, Stage("wide", PARTITIONS, topic.topic_id)
    world.kill()


def kept_of_requests() -> list[object]:
    gc.collect()
    return [each for each in gc.get_objects() if isinstance(each, Request | Appending | Fetching)]


def go_away_after(world: World, steps_taken: int, key: ApiKey, values: dict[str, Any]) -> None:
    connection = world.connect()
    connection.request(key, WIDE[key].version, values)
    for _ in range(steps_taken):
        if steps := world.steps():
            world.do(steps[0][1])
    world.network.drop(connection)


@pytest.mark.parametrize("key", sorted(WIDE), ids=lambda key: APIS[key].name)
def test_nothing_is_kept_of_a_wide_request_whose_client_goes_away_between_two_steps(
    stage: tuple[World, Stage], key: ApiKey
) -> None:
    world, found = stage
    values = WIDE[key].fields(min(ELEMENTS, max_elements(key)), found)
    for steps_taken in STEPS_TAKEN:
        go_away_after(world, steps_taken, key, values)
        assert world.ask(ApiKey.API_VERSIONS, 0).error_code == 0
        world.advance(A_WHILE_MS)
        assert len(world.node.turns) == 0
    assert kept_of_requests() == []


def test_partitions_forget_a_wide_fetch_whose_client_goes_away(stage: tuple[World, Stage]) -> None:
    world, found = stage
    connection = world.connect()
    connection.request(ApiKey.FETCH, WIDE[ApiKey.FETCH].version, fetch_session(ELEMENTS, found))
    while not any(partition.waits.readers for partition in world.node.hosted):
        world.do(world.steps()[0][1])
    world.network.drop(connection)
    assert not any(partition.waits.readers for partition in world.node.hosted)


def test_a_wide_produce_whose_client_goes_away_leaves_whole_batches_and_lets_others_write(
    stage: tuple[World, Stage],
) -> None:
    world, found = stage
    connection = world.connect()
    values = WIDE[ApiKey.PRODUCE].fields(ELEMENTS, found)
    connection.request(ApiKey.PRODUCE, WIDE[ApiKey.PRODUCE].version, values)
    log = world.node.hosted.leader("wide", 0).replica.log
    before = log.offsets.end
    while log.offsets.end == before:
        world.do(world.steps()[0][1])
    world.network.drop(connection)
    world.settle()
    assert before < log.offsets.end < before + ELEMENTS // PARTITIONS
    answer = world.ask(ApiKey.PRODUCE, WIDE[ApiKey.PRODUCE].version, **WIDE[ApiKey.PRODUCE].fields(2, found))
    assert answer.responses[0].partition_responses[0].error_code == 0
