"""The widest legal request of every API, and how much of it is done in one turn of the loop. No clock decides.

The unit is a line of Python that runs, counted by the interpreter itself: a loop that is not cut into steps shows as
many lines in one turn as it has iterations, whoever forgot about it. A line takes some 50 to 100 ns.

Counting is slow, so that a request has a tenth of its width and a turn a tenth of its lines: what is not cut grows with
the width. `CORDWOOD_WIDEST=yes` sends the full width.
"""

import os
from collections.abc import Iterator
from typing import Any

import pytest
from benchmarks.wide_requests import GROUP, WIDE, Stage, fetch_session
from simulation.world.world import World
from tests.unit.node.lines import busiest_turn
from tests.unit.node.speaking import create_topic

from cordwood.node.apis import SERVED
from cordwood.wire.apis import APIS, ApiKey
from cordwood.wire.encoding.schema import Struct, load
from cordwood.wire.widths import MAX_ELEMENTS, max_elements

SHARE = 1 if os.environ.get("CORDWOOD_WIDEST") else 10
MAX_LINES_PER_TURN = 400_000 // SHARE
"""Some 20 to 40 ms at the full width."""

PARTITIONS = 50
"""Few, so that the stage is set quickly. What is asked for repeats them."""


def has_arrays(struct: Struct, version: int) -> bool:
    return any(
        version in field.versions
        and (field.is_array or (field.struct is not None and has_arrays(field.struct, version)))
        for field in struct.fields
    )


def takes_arrays(key: int) -> bool:
    request = load(APIS[key].name)["request"]
    api = SERVED[key]
    return any(has_arrays(request.body, version) for version in range(api.min_version, api.max_version + 1))


def test_every_api_that_is_served_declares_how_wide_its_requests_may_be() -> None:
    assert not [APIS[key].name for key in SERVED if key not in MAX_ELEMENTS]
    assert not [APIS[key].name for key in MAX_ELEMENTS if key not in SERVED]


def test_no_api_that_takes_arrays_is_missing_here() -> None:
    wide = {key for key in SERVED if takes_arrays(key)}
    assert {APIS[key].name for key in wide} == {APIS[key].name for key in WIDE}
    assert not [APIS[key].name for key in wide if not max_elements(key)]


@pytest.fixture(scope="module")
def stage() -> Iterator[tuple[World, Stage]]:
    world = World(seed=1).start()
    topic = create_topic(world, "wide", PARTITIONS)
    world.ask(ApiKey.FIND_COORDINATOR, 2, key=GROUP, key_type=0)
    world.ask(ApiKey.FIND_COORDINATOR, 2, key=GROUP, key_type=1)
    found = Stage("wide", PARTITIONS, topic.topic_id)
    for key in (ApiKey.PRODUCE, ApiKey.OFFSET_COMMIT):
        world.ask(key, WIDE[key].version, **WIDE[key].fields(PARTITIONS + 1, found))
    yield world, found
    world.kill()


def lines_per_turn(world: World, key: ApiKey, version: int, fields: dict[str, Any]) -> int:
    """Sends it, waits for the answer, and returns the most lines of any turn."""
    connection = world.connect()
    asked = connection.request(key, version, fields)
    most = busiest_turn(world)
    assert asked.answered, asked.hang_up_reason
    connection.close()
    world.settle()
    return most


@pytest.mark.parametrize("key", sorted(WIDE), ids=lambda key: APIS[key].name)
def test_no_turn_does_more_than_its_share_of_the_widest_request(stage: tuple[World, Stage], key: ApiKey) -> None:
    world, found = stage
    wide = WIDE[key]
    count = max_elements(key) // SHARE
    # Codecs are made when they are first needed.
    world.begin(key, wide.version, **wide.fields(3, found))
    most = lines_per_turn(world, key, wide.version, wide.fields(count, found))
    print(f"{APIS[key].name}: {most} lines in a turn")
    assert most <= MAX_LINES_PER_TURN


def test_no_turn_does_more_than_its_share_of_the_widest_session(stage: tuple[World, Stage]) -> None:
    world, found = stage
    fields = fetch_session(max_elements(ApiKey.FETCH) // SHARE, found)
    assert lines_per_turn(world, ApiKey.FETCH, WIDE[ApiKey.FETCH].version, fields) <= MAX_LINES_PER_TURN


@pytest.mark.parametrize("key", sorted(WIDE), ids=lambda key: APIS[key].name)
def test_one_element_more_than_the_widest_is_refused(stage: tuple[World, Stage], key: ApiKey) -> None:
    world, found = stage
    wide = WIDE[key]
    asked = world.begin(key, wide.version, **wide.fields(max_elements(key) + 3, found))
    assert "elements" in asked.hang_up_reason
