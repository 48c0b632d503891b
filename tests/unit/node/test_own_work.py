"""The broker's own work over many partitions, and how much of it is done in one turn of the loop. No clock decides.

The unit is a line of Python that runs (`lines.py`). Work that is not cut into turns shows 50 to 250 lines for each
partition in one turn, so that a limit for a few hundred partitions holds for tens of thousands.
"""

from collections.abc import Iterator
from uuid import UUID

import pytest
from simulation.world.world import World
from tests.unit.node.lines import Lines, busiest_turn
from tests.unit.node.speaking import batch_of, create_topic, produce_values

from cordwood.cluster.planner.topics import NewTopic, plan_create_topics
from cordwood.log.upkeep.flushing import FlushTicket
from cordwood.model.moment import Moment
from cordwood.node.partitions import flushes
from cordwood.wire.apis import ApiKey

PARTITIONS = 300
MOST_LINES = 17_000
"""Of one turn: 1 to 2 ms."""

A_WHILE_MS = 62_000
"""Within this time every duty by the clock comes at least once."""

FILE_DELETE_DELAY_MS = 61_000
"""A little more than the default of file.delete.delay.ms."""


@pytest.fixture
def world() -> Iterator[World]:
    world = World(seed=1, scrubbed=True).start()
    yield world
    world.kill()


def fill(world: World, topic: str, times: int = 1) -> None:
    batch = batch_of(world)
    for _ in range(times):
        for index in range(0, PARTITIONS, 100):
            world.ask(ApiKey.PRODUCE, 9, **produce_values(topic, *[batch] * 100, index=index))


def test_a_checkpoint_of_many_logs_takes_turns(world: World) -> None:
    create_topic(world, "wide", PARTITIONS)
    fill(world, "wide")
    assert busiest_turn(world, A_WHILE_MS) <= MOST_LINES
    assert all(world.node.logs.durable_recovery_point(each.name) == 1 for each in world.node.hosted.led("wide"))


def test_a_choice_among_many_compacted_logs_takes_turns(world: World) -> None:
    create_topic(world, "wide", PARTITIONS, cleanup_policy="compact", segment_bytes="100")
    fill(world, "wide", 2)
    assert busiest_turn(world, A_WHILE_MS) <= MOST_LINES


def test_placing_and_planning_a_partition_of_a_wide_topic_takes_a_few_lines(world: World) -> None:
    """One request may create 10,000 partitions, which are planned in one turn: 40 lines for each took 45 ms."""
    topic = NewTopic("wide", 1000)
    taken = Lines().of(lambda: plan_create_topics(world.node.image, [topic], lambda: UUID(int=7)))
    assert taken <= 25 * 1000


def test_a_flush_round_has_a_bounded_number_of_logs(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flushes, "FLUSHED_AT_ONCE", 40)
    create_topic(world, "wide", 100)
    rounds = []
    flushed = world.node.flushed

    def count(tickets: list[FlushTicket], now: Moment) -> None:
        rounds.append(len(tickets))
        flushed(tickets, now)

    monkeypatch.setattr(world.node, "flushed", count)
    answer = world.ask(ApiKey.PRODUCE, 9, **produce_values("wide", *[batch_of(world)] * 100))
    assert {each.error_code for each in answer.responses[0].partition_responses} == {0}
    assert max(rounds) == 40
    assert sum(rounds) == 100


def test_acks_that_expire_together_are_answered_in_turns(world: World) -> None:
    create_topic(world, "wide", PARTITIONS)
    asked = [
        world.connect().request(ApiKey.PRODUCE, 9, produce_values("wide", batch_of(world), index=index))
        for index in range(PARTITIONS)
    ]
    assert world.life is not None
    world.life.flusher.steps = list  # type: ignore[method-assign]  # the disk hangs
    world.settle()
    assert busiest_turn(world, 5_000) <= MOST_LINES
    assert all(each.answered for each in asked)


def test_a_deletion_renames_no_directory_in_the_loop(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a full disk a rename waits for the journal: thousands of renames held the loop for seconds."""
    create_topic(world, "wide", PARTITIONS)
    fill(world, "wide")
    world.advance(A_WHILE_MS)
    renamed_in: list[str] = []
    doing = ""
    rename = world.disk.rename

    def note(old: str, new: str) -> None:
        renamed_in.append(doing)
        rename(old, new)

    monkeypatch.setattr(world.disk, "rename", note)
    asked = world.connect().request(ApiKey.DELETE_TOPICS, 5, {"topic_names": ["wide"], "timeout_ms": 1000})
    while steps := world.steps():
        doing, step = steps[0]
        world.do(step)
    assert asked.answered
    assert len(renamed_in) >= PARTITIONS
    assert set(renamed_in) == {"do work"}
    world.advance(FILE_DELETE_DELAY_MS)
    assert not [name for name in world.disk.list("/data") if name.startswith("wide")]


def test_a_new_topic_has_its_name_before_the_old_directory_is_renamed(world: World) -> None:
    create_topic(world, "orders")
    world.ask(ApiKey.PRODUCE, 9, **produce_values("orders", batch_of(world, b"old")))
    asked = world.connect().request(ApiKey.DELETE_TOPICS, 5, {"topic_names": ["orders"], "timeout_ms": 1000})
    while "orders" in world.node.hosted.topics:
        world.do(next(step for name, step in world.steps() if name != "do work"))
    topic = {"name": "orders", "num_partitions": 1, "replication_factor": 1}
    created = world.connect().request(ApiKey.CREATE_TOPICS, 7, {"topics": [topic], "timeout_ms": 1000})
    produced = None
    while (produced is None or not produced.answered) and (
        steps := [step for name, step in world.steps() if name != "do work"]
    ):
        world.do(steps[0])
        if created.answered and produced is None:
            fields = produce_values("orders", batch_of(world, b"new"))
            produced = world.connect().request(ApiKey.PRODUCE, 9, fields)
    assert produced is not None
    assert produced.answered
    assert "orders-0.0-delete" in world.disk.list("/data"), "no thread has removed it yet"
    world.settle()
    assert asked.answered
    assert world.disk.list("/data").count("orders-0") == 1
    assert "orders-0.0-delete" in world.disk.list("/data"), "file.delete.delay.ms is not over"
    world.advance(FILE_DELETE_DELAY_MS)
    assert "orders-0.0-delete" not in world.disk.list("/data")
    assert world.node.hosted.leader("orders", 0).replica.log.offsets.end == 1


def deleted_on_disk(world: World) -> list[str]:
    return sorted(name for name in world.disk.list("/data") if name.endswith("-delete"))


def test_the_files_of_a_deleted_topic_stay_for_the_delay_of_that_topic(world: World) -> None:
    create_topic(world, "patient", file_delete_delay_ms="5000")
    create_topic(world, "hasty", file_delete_delay_ms="0")
    for topic in ("patient", "hasty"):
        world.ask(ApiKey.PRODUCE, 9, **produce_values(topic, batch_of(world, b"old")))
    world.ask(ApiKey.DELETE_TOPICS, 5, topic_names=["patient", "hasty"], timeout_ms=1000)
    world.settle()
    assert deleted_on_disk(world) == ["patient-0.0-delete"]
    world.advance(4_000)
    assert deleted_on_disk(world) == ["patient-0.0-delete"]
    world.advance(2_000)
    assert not deleted_on_disk(world)


def test_a_restart_removes_the_files_of_deleted_topics_whose_delay_is_not_over(world: World) -> None:
    create_topic(world, "orders", file_delete_delay_ms="5000")
    world.ask(ApiKey.PRODUCE, 9, **produce_values("orders", batch_of(world, b"old")))
    world.ask(ApiKey.DELETE_TOPICS, 5, topic_names=["orders"], timeout_ms=1000)
    world.settle()
    assert deleted_on_disk(world)
    world.stop()
    world.start()
    assert not deleted_on_disk(world)
    assert not world.node.image.deleted_topics


def test_very_many_segments_are_dropped_in_turns(world: World) -> None:
    """One DeleteRecords renamed the files of all segments of a partition in one turn."""
    create_topic(world, "orders", segment_bytes="100")
    for _ in range(10):
        for _ in range(30):
            world.ask(ApiKey.PRODUCE, 9, **produce_values("orders", batch_of(world)))
        world.advance(2_000)
    log = world.node.hosted.leader("orders", 0).replica.log
    assert len(log.segments) == 300
    world.advance(A_WHILE_MS)
    topics = [{"name": "orders", "partitions": [{"partition_index": 0, "offset": -1}]}]
    asked = world.connect().request(ApiKey.DELETE_RECORDS, 2, {"topics": topics, "timeout_ms": 1000})
    assert busiest_turn(world, 10_000) <= MOST_LINES
    assert asked.answered
    assert len(log.segments) == 1
    assert log.offsets.start == 300
    assert busiest_turn(world, 2 * world.settings.log_retention_check_interval_ms) <= MOST_LINES
    assert not [name for name in world.disk.list("/data/orders-0") if name.endswith(".deleted")]
