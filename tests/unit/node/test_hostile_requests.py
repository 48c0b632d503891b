"""Hostile requests of every API: each array in turn, with names that exist or not, repeated or not, and the longest
strings, on stored state. No clock decides: lines of Python that run are counted (`lines.py`).

A request that gets four times as wide may cost four times as much and a little more: work that looks at all elements
for each of them would cost sixteen times as much. Long turns show in the full width alone: `CORDWOOD_WIDEST=yes` sends
it, in every version, and bounds the lines of a turn. `python -m benchmarks.stalls` measures the CPU time on a real
broker.
"""

import os
from collections.abc import Iterator

import pytest
from benchmarks.hostile_requests import Hostile, fields_of, hostile_requests
from benchmarks.stalls import store
from benchmarks.wide_requests import GROUP, WIDE, Stage
from simulation.world.world import World
from tests.unit.node.lines import Work, work_of
from tests.unit.node.speaking import create_topic

from cordwood.node.apis import SERVED
from cordwood.wire.apis import APIS, ApiKey

FULL_WIDTH = bool(os.environ.get("CORDWOOD_WIDEST"))
MAX_LINES_PER_TURN = 400_000
"""Some 20 to 40 ms."""

FEW, MANY = 30, 120
"""Elements."""

GROWTH = 1.5
"""How much faster than the request its work may grow."""

A_FEW_LINES = 5000
"""Lines that do not depend on the width: tables of settings, a first use, a flush round."""

MAX_BYTES = 4 * 1024 * 1024
PARTITIONS = 50
STORED = 20


@pytest.fixture(scope="module")
def stage() -> Iterator[tuple[World, Stage]]:
    world = World(seed=1).start()
    topic = create_topic(world, "wide", PARTITIONS)
    for key_type in (0, 1):
        world.ask(ApiKey.FIND_COORDINATOR, 2, key=GROUP, key_type=key_type)
    found = Stage("wide", PARTITIONS, topic.topic_id)
    for key in (ApiKey.PRODUCE, ApiKey.OFFSET_COMMIT):
        world.ask(key, WIDE[key].version, **WIDE[key].fields(PARTITIONS + 1, found))
    store(world, found, STORED)
    yield world, found
    world.kill()


def work(world: World, stage: Stage, hostile: Hostile, elements: int | None) -> Work:
    connection = world.connect()
    max_bytes = {} if elements is None else {"max_bytes": MAX_BYTES}
    asked = connection.request(hostile.key, hostile.version, fields_of(hostile, stage, elements, **max_bytes))
    done = work_of(world, everywhere=True)
    assert asked.answered or asked.hang_up_reason or elements is not None, hostile
    connection.close()
    world.settle()
    return done


@pytest.mark.parametrize("key", sorted(SERVED), ids=lambda key: APIS[key].name)
def test_the_work_of_a_hostile_request_grows_no_faster_than_the_request(stage: tuple[World, Stage], key: int) -> None:
    world, found = stage
    newest = SERVED[key].max_version
    for hostile in hostile_requests(ApiKey(key), range(newest, newest + 1)):
        work(world, found, hostile, 3)  # codecs are made when they are first needed
        few, many = work(world, found, hostile, FEW), work(world, found, hostile, MANY)
        assert many.total <= A_FEW_LINES + GROWTH * MANY / FEW * few.total, hostile
        assert many.busiest_turn <= MAX_LINES_PER_TURN, hostile


@pytest.mark.skipif(not FULL_WIDTH, reason="takes many minutes: CORDWOOD_WIDEST=yes")
@pytest.mark.parametrize("key", sorted(SERVED), ids=lambda key: APIS[key].name)
def test_no_turn_does_much_of_the_widest_hostile_request_of_any_version(stage: tuple[World, Stage], key: int) -> None:
    world, found = stage
    api = SERVED[key]
    for hostile in hostile_requests(ApiKey(key), range(api.min_version, api.max_version + 1)):
        work(world, found, hostile, 3)
        assert work(world, found, hostile, None).busiest_turn <= MAX_LINES_PER_TURN, hostile
