"""Compaction drops markers and tombstones; a replica that was away keeps no record that they ended or deleted."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace

import pytest
from simulation.checkers.compacted import check_compacted, latest_records
from simulation.world.broken import InvariantBroken
from simulation.world.disk import ProcessDied
from simulation.world.machine import BrokerFailed
from simulation.world.world import World
from tests.simulation import switches
from tests.simulation.test_replication_on_machines import (
    ALL,
    ROUND_MS,
    TOPIC,
    create,
    cut_off,
    elect,
    heal,
    hosted,
    image,
    log,
    others,
)
from tests.unit.node.two_brokers import run

from cordwood.cluster.metadata.partitions import partition_row
from cordwood.cluster.metadata.rows import encode_partition, partition_key
from cordwood.cluster.stores.interface import Put
from cordwood.log.log import Log
from cordwood.model.errors import ErrorCode
from cordwood.node.handlers.records.fetching import Fetching
from cordwood.node.replication.refills import Refills
from cordwood.records.build import build_batch
from cordwood.records.control import TransactionMarker, build_transaction_marker
from cordwood.replication.leader import LeaderReplica
from cordwood.segments.dropped_deletions import FILE_NAME
from cordwood.wire.apis import ApiKey

LAG_MS = 1_000
SETTINGS = {
    "replica.lag.time.max.ms": str(LAG_MS),
    "log.cleaner.backoff.ms": "500",
    "log.flush.offset.checkpoint.interval.ms": "500",
    "log.cleaner.delete.retention.ms": "100",
}
COMPACTED = {
    "cleanup_policy": "compact",
    "min_cleanable_dirty_ratio": "0.01",
    "segment_bytes": "14",
    "delete_retention_ms": "100",
    "file_delete_delay_ms": "0",
}
PRODUCER = 7

Scene = Callable[[World], tuple["Writer", int]]


@pytest.fixture
def world() -> Iterator[World]:
    with three_brokers() as world:
        yield world


@contextmanager
def three_brokers() -> Iterator[World]:
    world = World(seed=1, settings=SETTINGS, machines=3).start()
    world.settle()
    yield world
    world.kill()


class Writer:
    """Writes to the leader of a compacted topic, each batch into a segment of its own."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.leader = create(world, **COMPACTED)
        self.sequence = 0

    def put(self, key: bytes, value: bytes | None) -> None:
        self._append(build_batch([(self.world.clock.wall_ms, key, value, ())]))

    def put_in_transaction(self, key: bytes, value: bytes) -> None:
        batch = build_batch(
            [(self.world.clock.wall_ms, key, value, ())],
            producer_id=PRODUCER,
            producer_epoch=0,
            base_sequence=self.sequence,
            transactional=True,
        )
        self.sequence += 1
        self._append(batch)

    def end_transaction(self, *, commit: bool) -> None:
        marker, now_ms = TransactionMarker(commit, 0), self.world.clock.wall_ms
        self._append(build_transaction_marker(marker, producer_id=PRODUCER, producer_epoch=0, timestamp_ms=now_ms))

    def _append(self, batch: bytearray) -> None:
        partition, node = hosted(self.world, self.leader), self.world.machine_of(self.leader).node
        node.appends.append_internal(partition, batch, node.loop.now)
        self.world.advance(50)

    def compact(self) -> None:
        """Writes on until compaction has come two rounds further: what is due is dropped in the second."""
        for number in range(6):
            self.put(b"other", b"%d" % number)
            self.world.advance(2_000)


def a_key_is_deleted_while_a_replica_is_away(world: World) -> tuple[Writer, int]:
    """Returns the writer, and the replica, which is back and has not fetched yet."""
    writer = Writer(world)
    writer.put(b"key", b"value")
    world.advance(ROUND_MS)
    late = others(writer.leader)[0]
    cut_off(world, late)
    world.advance(3 * LAG_MS)
    writer.put(b"key", None)
    writer.compact()
    assert b"key" not in [key for key, _ in keys(log(world, writer.leader))], "the tombstone is gone"
    return writer, late


def a_transaction_is_aborted_while_a_replica_is_away(world: World) -> tuple[Writer, int]:
    writer = Writer(world)
    writer.put(b"key", b"value")
    writer.put_in_transaction(b"key", b"aborted")
    world.advance(ROUND_MS)
    late = others(writer.leader)[0]
    cut_off(world, late)
    world.advance(3 * LAG_MS)
    writer.end_transaction(commit=False)
    # The trace of a producer's last batch, and with it the marker behind, would stay.
    writer.put_in_transaction(b"another", b"committed")
    writer.end_transaction(commit=True)
    writer.compact()
    return writer, late


def keys(a_log: Log) -> list[tuple[bytes, int]]:
    return sorted((key, offset) for key, (offset, _) in latest_records(a_log, a_log.offsets.end).items())


def get_in_sync(world: World, late: int) -> None:
    heal(world, late)
    world.advance(10_000)
    assert set(image(world, others(late)[0]).isr) == set(ALL)


def test_a_deleted_key_does_not_return_at_a_replica_that_was_away(world: World) -> None:
    _, late = a_key_is_deleted_while_a_replica_is_away(world)
    get_in_sync(world, late)
    check_compacted(world, TOPIC)


def test_an_aborted_record_is_not_committed_by_the_next_transaction_of_its_producer(world: World) -> None:
    writer, late = a_transaction_is_aborted_while_a_replica_is_away(world)
    get_in_sync(world, late)
    writer.put_in_transaction(b"another", b"committed")
    writer.end_transaction(commit=True)
    world.advance(ROUND_MS)
    check_compacted(world, TOPIC)


@pytest.mark.parametrize(
    "scene", [a_key_is_deleted_while_a_replica_is_away, a_transaction_is_aborted_while_a_replica_is_away]
)
def test_the_checker_notices_a_cluster_that_goes_on_without_dropped_deletions(
    scene: Scene, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    switches.goes_on_without_deletions_that_its_leader_dropped(monkeypatch)
    writer, late = scene(world)
    get_in_sync(world, late)
    writer.put_in_transaction(b"another", b"committed")
    writer.end_transaction(commit=True)
    world.advance(ROUND_MS)
    with pytest.raises(InvariantBroken, match="rule 15"):
        check_compacted(world, TOPIC)


# What a refill does


def directories(world: World, broker_id: int) -> list[str]:
    """The directories of the topic at a broker, with those that were set aside."""
    machine = world.machine_of(broker_id)
    names = machine.disk.list_directories(machine.setup.data_directories[0])
    return sorted(name for name in names if name.startswith(f"{TOPIC}-0"))


def test_the_old_files_stay_until_the_replica_is_in_sync(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    writer, late = a_key_is_deleted_while_a_replica_is_away(world)
    monkeypatch.setattr(LeaderReplica, "may_join", lambda leader, broker_id: False)
    heal(world, late)
    world.advance(5_000)
    assert log(world, late).offsets.end == log(world, writer.leader).offsets.end
    assert directories(world, late) == [f"{TOPIC}-0", f"{TOPIC}-0.0-stray"]
    # They wait over a restart.
    machine = world.machine_of(late)
    machine.kill()
    machine.start()
    world.advance(5_000)
    assert directories(world, late) == [f"{TOPIC}-0", f"{TOPIC}-0.0-stray"]
    monkeypatch.undo()
    world.advance(10_000)
    assert late in image(world, writer.leader).isr
    assert directories(world, late) == [f"{TOPIC}-0"]


def a_refill_under_way(world: World, monkeypatch: pytest.MonkeyPatch) -> tuple[Writer, int]:
    """Returns the writer, and the replica, whose old files wait until it is in sync."""
    writer, late = a_key_is_deleted_while_a_replica_is_away(world)
    monkeypatch.setattr(LeaderReplica, "may_join", lambda leader, broker_id: False)
    heal(world, late)
    world.advance(5_000)
    assert directories(world, late) == [f"{TOPIC}-0", f"{TOPIC}-0.0-stray"]
    return writer, late


def delete_topic(world: World) -> None:
    deleted = world.ask_at(1, ApiKey.DELETE_TOPICS, 3, topic_names=[TOPIC], timeout_ms=1000)
    assert deleted.responses[0].error_code == ErrorCode.NONE


@pytest.mark.parametrize("running", [True, False])
def test_the_old_files_of_a_deleted_topic_are_removed(
    world: World, monkeypatch: pytest.MonkeyPatch, running: bool
) -> None:
    _, late = a_refill_under_way(world, monkeypatch)
    machine = world.machine_of(late)
    if not running:
        machine.kill()
    delete_topic(world)
    world.advance(10_000)
    if not running:
        machine.start()
        world.advance(10_000)
    assert directories(world, late) == []


def test_the_old_files_of_a_partition_that_moves_away_are_removed(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer, late = a_refill_under_way(world, monkeypatch)
    row = image(world, writer.leader)
    moved = replace(row, replicas=tuple(others(late)), partition_epoch=row.partition_epoch + 1)
    put = Put(partition_key(hosted(world, late).topic_id, 0), encode_partition(partition_row(moved)))
    assert run(world.store.txn((), (put,))).succeeded
    world.advance(10_000)
    assert directories(world, late) == []


def test_a_replica_without_room_for_two_copies_waits_and_says_so(
    world: World, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    writer, late = a_key_is_deleted_while_a_replica_is_away(world)
    logs = world.machine_of(late).node.logs
    monkeypatch.setattr(logs, "free_bytes_of", lambda log: 1)
    heal(world, late)
    world.advance(10_000)
    assert late not in image(world, writer.leader).isr
    assert log(world, late).offsets.end == 1, "the old copy stays as it was"
    assert f"{TOPIC}-0 stays out of sync" in caplog.text
    monkeypatch.undo()
    world.advance(20_000)
    assert late in image(world, writer.leader).isr
    check_compacted(world, TOPIC)


@pytest.mark.parametrize("operations", [1, 4, 9, 15, 22])
def test_a_refill_that_is_killed_at_any_disk_operation_ends_in_sync(world: World, operations: int) -> None:
    _, late = a_key_is_deleted_while_a_replica_is_away(world)
    machine = world.machine_of(late)
    machine.disk.die_within(operations)
    heal(world, late)
    with suppress(ProcessDied, BrokerFailed):
        world.advance(10_000)
    machine.kill()
    machine.start()
    world.advance(15_000)
    assert late in image(world, others(late)[0]).isr
    check_compacted(world, TOPIC)
    assert directories(world, late) == [f"{TOPIC}-0"]


def test_a_refill_goes_on_after_a_restart_where_it_was(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    writer, late = a_key_is_deleted_while_a_replica_is_away(world)
    heal(world, late)
    while log(world, late).segments.dropped is None:
        world.advance(1)
    noted = log(world, late).segments.dropped
    assert noted == log(world, writer.leader).segments.dropped
    while not log(world, late).offsets.saved_recovery_point:
        # Before, nothing tells that no record lies before the first file, and the refill would begin once more.
        world.advance(10)
    machine = world.machine_of(late)
    machine.kill()
    machine.start()
    begun = []
    monkeypatch.setattr(Refills, "begin", lambda *arguments: begun.append(arguments))
    world.advance(10_000)
    assert log(world, late).offsets.start == 0
    assert not begun
    assert late in image(world, writer.leader).isr
    assert log(world, late).segments.dropped == noted


def test_a_refill_under_a_leader_that_changes_ends_in_sync(world: World) -> None:
    writer, late = a_key_is_deleted_while_a_replica_is_away(world)
    heal(world, late)
    while log(world, late).segments.dropped is None:
        world.advance(1)
    third = next(broker for broker in others(late) if broker != writer.leader)
    elect(world, third)
    world.advance(20_000)
    assert set(image(world, third).isr) == set(ALL)
    check_compacted(world, TOPIC)


def test_a_replica_that_was_filled_tells_of_deletions_that_it_never_had(world: World) -> None:
    """The first leader drops a tombstone, and a second replica is filled from it. A third, which still has the value,
    comes back when the second leads."""
    writer, late = a_key_is_deleted_while_a_replica_is_away(world)
    second = next(broker for broker in others(late) if broker != writer.leader)
    machine = world.machine_of(second)
    machine.kill()
    machine.replace_disk()
    machine.start()
    world.advance(10_000)
    assert second in image(world, writer.leader).isr
    elect(world, second, isr=(writer.leader, second))
    cut_off(world, writer.leader)
    world.links.heal(late, second)
    world.links.heal(second, late)
    world.advance(10_000)
    assert late in image(world, second).isr
    assert b"key" not in dict(keys(log(world, late)))


# Who is never filled anew


def test_a_leader_drops_no_deletion_while_a_follower_catches_up(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    writer, late = a_key_is_deleted_while_a_replica_is_away(world)
    monkeypatch.setattr(LeaderReplica, "may_join", lambda leader, broker_id: False)
    heal(world, late)
    world.advance(5_000)
    before = log(world, writer.leader).segments.dropped
    writer.put(b"second", b"value")
    writer.put(b"second", None)
    writer.compact()
    assert log(world, writer.leader).segments.dropped == before
    assert world.machine_of(writer.leader).node.compaction.held_up == 1
    monkeypatch.undo()
    world.advance(5_000)
    writer.compact()
    after = log(world, writer.leader).segments.dropped
    assert after is not None
    assert before is not None
    assert after.highest > before.highest
    check_compacted(world, TOPIC)


def test_a_follower_that_comes_no_nearer_does_not_keep_the_tombstones_for_ever(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has no room for a refill, and asks again and again."""
    writer, late = a_key_is_deleted_while_a_replica_is_away(world)
    monkeypatch.setattr(world.machine_of(late).node.logs, "free_bytes_of", lambda a_log: 0)
    heal(world, late)
    before = log(world, writer.leader).segments.dropped
    assert before is not None
    writer.put(b"second", b"value")
    writer.put(b"second", None)
    for _ in range(3):
        writer.compact()
    after = log(world, writer.leader).segments.dropped
    assert late not in image(world).isr
    assert after is not None
    assert after.highest > before.highest


def test_replicas_in_sync_that_drop_deletions_by_themselves_are_not_filled_anew(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun = []
    monkeypatch.setattr(Refills, "begin", lambda *arguments: begun.append(arguments))
    writer = Writer(world)
    for _ in range(3):
        writer.put(b"key", b"value")
        writer.put(b"key", None)
        writer.compact()
        for broker in others(writer.leader)[:1]:
            elect(world, broker)
            writer.leader = broker
            world.advance(ROUND_MS)
    assert not begun
    assert len({log(world, broker).segments.dropped for broker in ALL}) == 3
    check_compacted(world, TOPIC)


# Notes that are not there


def test_a_leader_that_was_compacted_by_a_release_without_notes_has_late_followers_filled_anew(world: World) -> None:
    writer, late = a_key_is_deleted_while_a_replica_is_away(world)
    machine = world.machine_of(writer.leader)
    machine.kill()
    machine.disk.remove(f"{machine.setup.data_directories[0]}/{TOPIC}-0/{FILE_NAME}")
    machine.start()
    world.advance(ROUND_MS)
    elect(world, writer.leader, isr=tuple(others(late)))
    get_in_sync(world, late)
    check_compacted(world, TOPIC)


# Brokers of the previous release, in the course of an upgrade


def test_a_leader_that_sends_no_note_leaves_late_followers_as_they_are(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the follower keeps is the harm of the previous release; it must not be filled anew again and again."""
    monkeypatch.setattr(Fetching, "_tell_dropped", lambda fetching, partition, place: None)
    begun = []
    monkeypatch.setattr(Refills, "begin", lambda *arguments: begun.append(arguments))
    writer, late = a_key_is_deleted_while_a_replica_is_away(world)
    get_in_sync(world, late)
    # The leader is upgraded, and sends its note from now on: the follower is in sync, and goes on.
    monkeypatch.undo()
    monkeypatch.setattr(Refills, "begin", lambda *arguments: begun.append(arguments))
    writer.put(b"key", b"again")
    writer.compact()
    assert not begun
    assert set(image(world).isr) == set(ALL)


def test_a_follower_that_does_not_know_notes_goes_on_and_leads(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    switches.goes_on_without_deletions_that_its_leader_dropped(monkeypatch)
    writer, late = a_key_is_deleted_while_a_replica_is_away(world)
    get_in_sync(world, late)
    # It is upgraded, leads, and lacks no deletion that it knows of: the others go on behind it.
    monkeypatch.undo()
    begun = []
    monkeypatch.setattr(Refills, "begin", lambda *arguments: begun.append(arguments))
    elect(world, late)
    writer.leader = late
    world.advance(ROUND_MS)
    writer.put(b"key", b"again")
    world.advance(5_000)
    assert not begun
    assert set(image(world).isr) == set(ALL)
    check_compacted(world, TOPIC)
