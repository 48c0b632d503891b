"""Which log is compacted next, and what happens when that fails."""

import logging
from collections.abc import Iterator
from typing import Any

import pytest
from simulation.world.threads import Done, Work
from simulation.world.world import World
from tests.unit.node.speaking import create_topic, delete_topic, fill

from cordwood.log.rewriting.compaction import CompactionJob, CompactionResult
from cordwood.model.errors import DamagedLog


@pytest.fixture
def world() -> Iterator[World]:
    often = {"log.cleaner.backoff.ms": "1000", "log.retention.check.interval.ms": "1000"}
    world = World(seed=1, settings=often).start()
    yield world
    world.kill()


def test_a_log_that_cannot_be_compacted_does_not_keep_others_from_it(world: World) -> None:
    """It has the largest share that was never compacted, so it would be chosen first, again and again."""
    for topic, count in (("worse", 6), ("good", 3)):
        create_topic(world, topic, cleanup_policy="compact", segment_bytes="150", min_cleanable_dirty_ratio="0")
        fill(world, topic, *[bytes(100)] * count)
    compact, tried = world.node.compaction._compact_log, list[str]()

    def compact_or_fail(job: CompactionJob) -> CompactionResult:
        tried.append(job.directory)
        if "worse" in job.directory:
            raise DamagedLog("it cannot be read")
        return compact(job)

    world.node.compaction._compact_log = compact_or_fail
    world.advance(200_000)
    clean_offset = world.node.logs.clean_offset
    good, worse = world.node.hosted.leader("good", 0).name, world.node.hosted.leader("worse", 0).name
    assert clean_offset(good) > 0
    assert sum("worse" in directory for directory in tried) == 1
    world.node.compaction._compact_log = compact
    world.advance(400_000)
    assert clean_offset(worse) > 0


def test_a_record_is_compacted_at_the_latest_when_its_lag_is_over(world: World) -> None:
    """However little is written: the segment is closed for it, and the share that is not compacted does not matter."""
    lag_ms = 100_000
    create_topic(world, cleanup_policy="compact", max_compaction_lag_ms=str(lag_ms), min_cleanable_dirty_ratio="0.99")
    clean_offset, name = world.node.logs.clean_offset, world.node.hosted.leader("orders", 0).name
    fill(world, "orders", *[b"clean" * 100] * 3)
    world.advance(2 * lag_ms)
    assert clean_offset(name) == 3
    fill(world, "orders", b"old")
    world.advance(lag_ms * 9 // 10)
    fill(world, "orders", b"new")
    assert clean_offset(name) == 3
    world.advance(lag_ms * 3 // 10)
    assert clean_offset(name) == 5


def test_a_segment_whose_file_of_aborts_is_wrong_is_not_compacted_before_it_is_put_right(world: World) -> None:
    """Compaction would take what another producer committed for a part of them, and remove it."""
    create_topic(world, cleanup_policy="compact", segment_bytes="150", min_cleanable_dirty_ratio="0")
    fill(world, "orders", *[bytes(100)] * 3)
    log = world.node.hosted.leader("orders", 0).replica.log
    clean_offset, name = world.node.logs.clean_offset, world.node.hosted.leader("orders", 0).name
    world.node.logs.home.checkpoint()
    log.segments[0].rewrite_transactions = True
    world.advance(200_000)
    assert clean_offset(name) == 0
    log.segments[0].rewrite_transactions = False
    world.advance(200_000)
    assert clean_offset(name) > 0


def test_a_topic_deleted_under_compaction_is_no_failure_and_a_new_one_of_its_name_is_compacted(
    world: World, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    compacted = {"cleanup_policy": "compact", "segment_bytes": "150", "min_cleanable_dirty_ratio": "0"}
    create_topic(world, "orders", 1, **compacted)
    fill(world, "orders", *[bytes(100)] * 6)
    world.node.logs.home.checkpoint()
    blocking, held = world.node.loop.effects.blocking, list[tuple[Any, Any]]()
    with monkeypatch.context() as slow:
        slow.setattr(world.node.loop.effects, "blocking", lambda work, done: held.append((work, done)))
        world.advance(20_000)
    assert held
    delete_topic(world, "orders")
    create_topic(world, "orders", 1, **compacted)
    for work, done in held:
        blocking(work, done)
    world.advance(0)
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]
    fill(world, "orders", *[bytes(100)] * 6)
    world.advance(200_000)
    assert world.node.logs.clean_offset(world.node.hosted.leader("orders", 0).name) > 0


def test_the_note_of_a_deleted_log_is_not_left_to_a_new_topic_of_its_name(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    life = world.machines[0].life
    assert life is not None
    submit, held = life.workers.submit, list[tuple[Work, Done]]()

    def hold_the_note(work: Work, done: Done) -> None:
        if "note_dropped" in getattr(work, "__qualname__", ""):
            held.append((work, done))
        else:
            submit(work, done)

    monkeypatch.setattr(life.workers, "submit", hold_the_note)
    for _ in range(2):
        create_topic(world, cleanup_policy="compact", segment_bytes="150", min_cleanable_dirty_ratio="0")
        fill(world, "orders", *[bytes(100)] * 3)
        if not held:
            world.advance(200_000)
            delete_topic(world, "orders")
    (note,) = held
    submit(*note)
    world.settle()
    assert world.disk.exists("/data/orders-0")
    assert not world.disk.exists("/data/orders-0/dropped-deletions")
