"""Fetches that name partitions again and again, or wait by the thousand: no turn of the loop does all of their work.

The unit is a line of Python that runs (`lines.py`).
"""

from collections.abc import Iterator
from typing import Any

import pytest
from simulation.world.world import World
from tests.unit.node.lines import busiest_turn
from tests.unit.node.speaking import batch_of, create_topic, fill, produce_values

from cordwood.model.errors import ErrorCode
from cordwood.node.requests import parked
from cordwood.wire.apis import ApiKey

MOST_LINES = 20_000
"""Of one turn: 1 to 2 ms."""

MORE_LINES = 5_500
"""Of a turn in which a topic is deleted that a fetch reads, than of one in which nobody reads it."""


@pytest.fixture
def world() -> Iterator[World]:
    world = World(seed=1).start()
    yield world
    world.kill()


def lines_of_a_deletion(world: World, partitions: int) -> int:
    """The most lines of a turn while a topic is deleted that nobody reads any more: forgetting its partitions, whose
    logs are open, takes one turn."""
    create_topic(world, "unread", partitions)
    world.ask(ApiKey.FETCH, 12, **fetch_values("unread", list(range(partitions)), max_wait_ms=0))
    world.connect().request(ApiKey.DELETE_TOPICS, 5, {"topic_names": ["unread"], "timeout_ms": 1000})
    return busiest_turn(world)


def fetch_values(topic: str, indexes: list[int], *, max_wait_ms: int) -> dict[str, Any]:
    each = {"partition_max_bytes": 1000, "current_leader_epoch": -1, "last_fetched_epoch": -1, "log_start_offset": -1}
    partitions = [{"partition": index, "fetch_offset": 0, **each} for index in indexes]
    return {
        "replica_id": -1,
        "max_wait_ms": max_wait_ms,
        "min_bytes": 1,
        "max_bytes": 10_000_000,
        "session_id": 0,
        "session_epoch": -1,
        "rack_id": "",
        "topics": [{"topic": topic, "partitions": partitions}],
    }


def test_a_fetch_that_names_partitions_again_and_again_while_their_topic_is_deleted_takes_turns(world: World) -> None:
    """Each deleted partition woke the fetch, which then read all others once more: 0.46 s in one turn."""
    unread = lines_of_a_deletion(world, 150)
    create_topic(world, "wide", 150)
    asked = world.connect().request(ApiKey.FETCH, 12, fetch_values("wide", list(range(150)) * 12, max_wait_ms=60_000))
    partition = world.node.hosted.leader("wide", 149)
    while not partition.waits.readers:
        world.do(world.steps()[0][1])
    world.connect().request(ApiKey.DELETE_TOPICS, 5, {"topic_names": ["wide"], "timeout_ms": 1000})
    assert busiest_turn(world) <= unread + MORE_LINES
    found = [each for topic in asked.answer.responses for each in topic.partitions]
    assert {each.error_code for each in found[-150:]} == {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}


def test_a_wide_fetch_that_waits_looks_at_all_of_a_deleted_topic_in_turns_and_is_answered(world: World) -> None:
    unread = lines_of_a_deletion(world, 150)
    create_topic(world, "wide", 150)
    asked = world.begin(ApiKey.FETCH, 12, **fetch_values("wide", list(range(150)), max_wait_ms=60_000))
    assert not asked.answered
    world.connect().request(ApiKey.DELETE_TOPICS, 5, {"topic_names": ["wide"], "timeout_ms": 1000})
    assert busiest_turn(world) <= unread + MORE_LINES
    found = [each.error_code for topic in asked.answer.responses for each in topic.partitions]
    assert found == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION] * 150


def test_a_produce_wakes_thousands_of_waiting_fetches_in_turns_and_all_are_answered(world: World) -> None:
    """20,480 fetches that waited for one partition made each Produce to it take 152 ms."""
    create_topic(world, "orders")
    fetches = []
    for _ in range(10):
        connection = world.connect()
        values = fetch_values("orders", [0], max_wait_ms=60_000)
        fetches += [connection.request(ApiKey.FETCH, 12, values) for _ in range(100)]
    world.settle()
    assert len(world.node.hosted.leader("orders", 0).waits.readers) == 1000
    produced = world.connect().request(ApiKey.PRODUCE, 9, produce_values("orders", batch_of(world)))
    assert busiest_turn(world, within_ms=200) <= MOST_LINES
    assert produced.answered
    assert all(each.answered for each in fetches)


def test_readers_that_wait_for_more_hear_of_each_move_while_they_are_woken_in_turns(world: World) -> None:
    create_topic(world, "orders")
    values = fetch_values("orders", [0], max_wait_ms=60_000)
    size = len(batch_of(world))
    values["min_bytes"] = 3 * size
    fetches = [world.connect().request(ApiKey.FETCH, 12, values) for _ in range(200)]
    world.settle()
    for _ in range(3):
        fill(world, "orders", b"value")
    world.advance(1000)
    assert all(each.answered for each in fetches)


def test_fetches_that_wait_for_too_many_partitions_together_are_answered_the_oldest_first(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Three hundred fetches of 9,000 partitions, 43 MB of requests, took 1.2 GB while they waited."""
    monkeypatch.setattr(parked, "MOST_PARTITIONS", 100)
    create_topic(world, "wide", 40)
    values = fetch_values("wide", list(range(40)), max_wait_ms=60_000)
    asked = []
    for number in range(5):
        asked.append(world.connect().request(ApiKey.FETCH, 12, values))
        world.advance(10)
        assert [each.answered for each in asked[-2:]] == [False] * min(2, number + 1)
    assert [each.answered for each in asked] == [True, True, True, False, False]
    assert world.node.parked.partitions == 80
    fill(world, "wide", b"value")
    assert all(each.answered for each in asked)
    assert not world.node.parked.partitions
    gone = world.connect()
    gone.request(ApiKey.FETCH, 12, fetch_values("wide", [1, 2], max_wait_ms=60_000))
    world.advance(10)
    gone.close()
    world.settle()
    assert not world.node.parked.partitions
