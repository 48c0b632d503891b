"""An internal topic as the log of state machines: one machine per partition, brought back by replaying its records.

The contract of every coordinator: a request yields records and an answer; state changes only when those records are
replayed, at append; the answer, and every read of that state, waits until the records are committed.

A shard belongs to one leader epoch of its partition. The shard is loaded from its log when the leadership begins, and
requests wait for the load. The shard is unloaded when the leadership ends, or goes over to a new epoch: requests that
still hold the shard are told NOT_COORDINATOR. Deadlines, leases and waits of a coordinator live in its shards and end
with them. State whose records were never committed ends with its shard, too.

Records of a transaction are held back until its marker: a commit replays the records, an abort drops them, in every
kind of machine.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

from cordwood.cluster.metadata.image import ClusterImage, TopicImage
from cordwood.log.directory.data_directories import DataDirectories
from cordwood.model.errors import DamagedLog, ErrorCode, ProtocolError, StorageFailure
from cordwood.model.state_tables import Moves, State
from cordwood.node.coordinators.coordinator_records import Found, read_records
from cordwood.node.coordinators.pending_records import PendingRecords
from cordwood.node.loop.loop import Loop
from cordwood.node.loop.reports import Reports
from cordwood.node.partitions.acks import Acks
from cordwood.node.partitions.appends import Appends
from cordwood.node.partitions.hosted import HostedReplicas
from cordwood.node.partitions.partition import Partition
from cordwood.records.build import build_batch_of_now
from cordwood.records.control import TransactionMarker, build_transaction_marker

logger = logging.getLogger("cordwood.coordinators")

LOAD_CHUNK_BYTES = 1 << 18
COMMIT_TIMEOUT_MS = 5_000

Record = tuple[bytes, bytes | None]
"""Key and value to append; a null value removes the key."""

Done = Callable[[ErrorCode], None]


class Ground(NamedTuple):
    """The rooms that a coordinator's log is built on."""

    loop: Loop
    image: ClusterImage
    hosted: HostedReplicas
    logs: DataDirectories
    appends: Appends
    acks: Acks
    reports: Reports


class Writer(NamedTuple):
    """The producer in whose transaction records are written."""

    producer_id: int
    producer_epoch: int


class Machine(Protocol):
    """State that is built from records alone."""

    def replay(self, key: bytes, value: bytes | None) -> None: ...


M = TypeVar("M", bound=Machine)


class ShardState(State):
    LOADING = "requests wait until the log is replayed"
    LOADED = "the shard serves requests"
    UNLOADED = "the leadership that the shard belongs to is over, or the log could not be read"


SHARD_MOVES = Moves(
    "shard of a coordinator",
    {
        ShardState.LOADING: {},
        ShardState.LOADED: {ShardState.LOADING},
        ShardState.UNLOADED: {ShardState.LOADING, ShardState.LOADED},
    },
)


class Shard(Generic[M]):
    """The machine of one partition of the internal topic, in one leader epoch."""

    __slots__ = ("last_written_offset", "machine", "partition", "pending", "state", "waiting")

    def __init__(self, partition: Partition, machine: M) -> None:
        self.partition = partition
        self.machine = machine
        self.state = ShardState.LOADING
        self.waiting: list[Done] = []
        self.last_written_offset = -1
        self.pending = PendingRecords()
        """Records of open transactions, which are not state yet."""

    def move(self, state: ShardState) -> None:
        self.state = SHARD_MOVES.moved(str(self.partition.name), self.state, state)

    def take_over(self, found: Found) -> None:
        """Replays a batch of the log, or holds it back until its transaction ends."""
        if found.marker is not None:
            for key, value in self.pending.ended(found.producer_id, found.marker.committed):
                self.machine.replay(key, value)
        elif found.producer_id >= 0:
            self.pending.add(found.producer_id, found.records)
        else:
            for offset, key, value in found.records:
                self.machine.replay(key, value)
                if self.pending:
                    self.pending.superseded(key, offset)


S = TypeVar("S", bound=Shard[Any])


class CoordinatorLog(Generic[S]):
    """All shards of one internal topic on this node."""

    def __init__(
        self,
        ground: Ground,
        topic: str,
        new_shard: Callable[[Partition], S],
        after_loading: Callable[[S], None],
        after_unloading: Callable[[S], None],
    ) -> None:
        self._loop = ground.loop
        self._image = ground.image
        self._hosted = ground.hosted
        self._logs = ground.logs
        self._appends = ground.appends
        self._acks = ground.acks
        self._reports = ground.reports
        self._after_loading = after_loading
        self._after_unloading = after_unloading
        self.topic = topic
        self._new_shard = new_shard
        self._shards: dict[int, S] = {}
        self._waiting_for_topic: list[Callable[[ProtocolError | None], None]] = []

    def when_topic_exists(self, done: Callable[[ProtocolError | None], None]) -> None:
        """Calls back once the internal topic exists; the first request for a coordinator creates the topic."""
        # A request must not overtake requests that still wait for the topic: the later of two commits has to win.
        if self.topic in self._image.topics and not self._waiting_for_topic:
            done(None)
            return
        self._waiting_for_topic.append(done)
        if len(self._waiting_for_topic) > 1:
            return

        def created(result: TopicImage | Exception) -> None:
            error = result if isinstance(result, ProtocolError) else None
            if isinstance(result, Exception) and error is None:
                self._reports.failure(result)
                error = ProtocolError(
                    ErrorCode.COORDINATOR_NOT_AVAILABLE, f"{self.topic} could not be created: {result}"
                )
            waiting, self._waiting_for_topic = self._waiting_for_topic, []
            for callback in waiting:
                callback(error)

        self._loop.effects.metadata(lambda writer: writer.ensure_internal_topic(self.topic), created)

    def loaded(self, index_of: Callable[[int], int]) -> S | None:
        """The shard of the partition that `index_of` picks; None if a request for it has to wait, or to fail."""
        topic = self._image.topics.get(self.topic)
        if topic is None or self._waiting_for_topic:
            return None
        found = self._shards.get(index_of(len(topic.partitions)))
        return (
            found
            if found is not None and found.state is ShardState.LOADED and self._hosted.serves(found.partition)
            else None
        )

    def with_shard(self, index_of: Callable[[int], int], done: Callable[[S], None], failed: Done) -> None:
        """Calls `done` with the loaded shard of the partition that `index_of` picks, given the number of partitions."""
        found = self.loaded(index_of)
        if found is not None:
            done(found)
            return

        def topic_exists(error: ProtocolError | None) -> None:
            if error is not None:
                failed(ErrorCode.COORDINATOR_NOT_AVAILABLE)
                return
            index = index_of(len(self._image.topics[self.topic].partitions))
            try:
                shard = self._shard(self._hosted.leader(self.topic, index))
            except ProtocolError:
                failed(ErrorCode.NOT_COORDINATOR)
                return
            self._load_then(shard, lambda code: done(shard) if code is ErrorCode.NONE else failed(code))

        self.when_topic_exists(topic_exists)

    def each_shard_with_records(self, done: Callable[[S], None], finished: Done = lambda worst_error: None) -> None:
        """Calls `done` for the shard of every partition with records once the shard is loaded, then `finished` once."""
        holding = self._with_records()
        left = len(holding)
        worst = ErrorCode.NONE
        if not holding:
            finished(worst)

        for partition in holding:
            shard = self._shard(partition)

            def loaded(code: ErrorCode, shard: S = shard) -> None:
                nonlocal left, worst
                left -= 1
                if code is ErrorCode.NONE:
                    done(shard)
                else:
                    worst = code
                if not left:
                    finished(worst)

            self._load_then(shard, loaded)

    def _with_records(self) -> list[Partition]:
        """The partitions that this broker leads and that have a log."""
        return [
            partition
            for partition in self._hosted.led(self.topic)
            if partition.opened is not None or self._logs.has_log(partition.name)
        ]

    def loaded_shards(self) -> list[S]:
        return [shard for shard in self._shards.values() if shard.state is ShardState.LOADED]

    def when_loaded(self, done: Callable[[list[S]], None]) -> None:
        """Calls back once, with all shards that have records and could be loaded."""
        shards = list(map(self._shard, self._with_records()))
        outstanding = len(shards)
        if not shards:
            done([])

        def loaded(_: ErrorCode) -> None:
            nonlocal outstanding
            outstanding -= 1
            if not outstanding:
                done([shard for shard in shards if shard.state is ShardState.LOADED])

        for shard in shards:
            self._load_then(shard, loaded)

    def write(self, shard: S, records: list[Record], done: Done, writer: Writer | None = None) -> None:
        """Appends the records, replays them, and calls back when they are committed.

        With a writer the records are part of the writer's transaction. The caller has made sure that the transaction is
        open and includes this partition.
        """
        if shard.state is ShardState.UNLOADED:
            done(ErrorCode.NOT_COORDINATOR)
            return
        if not records:
            done(ErrorCode.NONE)
            return
        wall_ms = self._loop.now.wall_ms
        if writer is None:
            batch = build_batch_of_now(records, wall_ms)
        else:
            batch = build_batch_of_now(
                records,
                wall_ms,
                producer_id=writer.producer_id,
                producer_epoch=writer.producer_epoch,
                transactional=True,
            )
        try:
            base_offset = self._append(shard, batch)
        except ProtocolError as refusal:
            done(_told(refusal.code))
            return
        if base_offset is None:
            done(ErrorCode.COORDINATOR_NOT_AVAILABLE)
            return
        if writer is None and not shard.pending:
            for key, value in records:
                shard.machine.replay(key, value)
        else:
            written = [(base_offset + place, key, value) for place, (key, value) in enumerate(records)]
            shard.take_over(Found(written, -1 if writer is None else writer.producer_id))
        self.when_committed(shard, done)

    def end_transaction(
        self,
        index: int,
        writer: Writer,
        marker: TransactionMarker,
        failed: Done,
        done: Callable[[int], None],
    ) -> None:
        """Appends the marker to a partition of this topic: the transaction's records become state, or are dropped.

        `done` gets the marker's offset at once; the marker is safe when that offset is committed.
        """

        def loaded(shard: S) -> None:
            batch = build_transaction_marker(
                marker,
                producer_id=writer.producer_id,
                producer_epoch=writer.producer_epoch,
                timestamp_ms=self._loop.now.wall_ms,
            )
            try:
                offset = self._append(shard, batch)
            except ProtocolError as refusal:
                failed(refusal.code)
                return
            if offset is None:
                failed(ErrorCode.KAFKA_STORAGE_ERROR)
                return
            shard.take_over(Found([], writer.producer_id, marker))
            done(offset)

        self.with_shard(lambda _: index, loaded, failed)

    def _append(self, shard: S, batch: bytearray) -> int | None:
        try:
            appended = self._appends.append_internal(shard.partition, batch, self._loop.now)
        except StorageFailure as failure:
            self._reports.failure(failure)
            return None
        shard.last_written_offset = appended.last_offset
        return appended.base_offset

    def when_committed(self, shard: S, done: Done) -> None:
        """Calls back when every record behind this shard's state is committed."""
        if shard.state is ShardState.UNLOADED:
            done(ErrorCode.NOT_COORDINATOR)
            return
        if shard.partition.replica.high_watermark > shard.last_written_offset:
            done(ErrorCode.NONE)
            return
        deadline_ms = self._loop.now.boot_ms + COMMIT_TIMEOUT_MS

        def committed(error: ErrorCode) -> None:
            # Acks go on in a new epoch of the same leader; the shard of the old epoch does not.
            done(_told(error) if self._may_answer(shard) else ErrorCode.NOT_COORDINATOR)

        self._acks.when_committed(shard.partition, shard.last_written_offset, deadline_ms, committed)

    def when_durable(self, shard: S, done: Done) -> None:
        """Calls back when every record behind this shard's state is on this broker's disk."""
        if shard.state is ShardState.UNLOADED:
            done(ErrorCode.NOT_COORDINATOR)
            return
        deadline_ms = self._loop.now.boot_ms + COMMIT_TIMEOUT_MS

        def durable(error: ErrorCode) -> None:
            done(error if self._may_answer(shard) else ErrorCode.NOT_COORDINATOR)

        self._acks.when_durable(shard.partition, shard.last_written_offset, deadline_ms, durable)

    def _may_answer(self, shard: S) -> bool:
        """True if an answer that has waited may rest on the shard: another broker may coordinate by now."""
        return shard.state is not ShardState.UNLOADED and self._hosted.serves(shard.partition)

    # Loading and unloading

    def _shard(self, partition: Partition) -> S:
        index = partition.name.partition
        shard = self._shards.get(index)
        if shard is None:
            shard = self._shards[index] = self._new_shard(partition)
        return shard

    def load_led(self) -> None:
        """Begins to load the shards of all partitions with records that this broker leads, one in each turn."""
        led = [partition for partition in self._with_records() if partition.name.partition not in self._shards]
        if led:
            self._loop.in_turns.add_steps(self._load_each(led))

    def _load_each(self, led: list[Partition]) -> Iterator[None]:
        for partition in led:
            if self._hosted.still_leads(partition):
                self._load_then(self._shard(partition), lambda error: None)
            yield

    def deposed(self, partition: Partition) -> None:
        """Unloads the shard of a partition whose leadership ended, if it is one of this topic."""
        topic, index = partition.name
        shard = self._shards.pop(index, None) if topic == self.topic else None
        if shard is None:
            return
        was_loaded = shard.state is ShardState.LOADED
        shard.move(ShardState.UNLOADED)
        waiting, shard.waiting = shard.waiting, []
        if was_loaded:
            self._after_unloading(shard)
        for done in waiting:
            done(ErrorCode.NOT_COORDINATOR)

    def _load_then(self, shard: S, done: Done) -> None:
        if shard.state is ShardState.LOADED:
            done(ErrorCode.NONE)
            return
        shard.waiting.append(done)
        if len(shard.waiting) == 1:
            try:
                log = shard.partition.replica.log
            except StorageFailure as failure:
                self._loaded(shard, failure)
                return
            shard.last_written_offset = log.offsets.end - 1
            self._load_from(shard, log.offsets.start)

    def _load_from(self, shard: S, offset: int, suspected: int = -1) -> None:
        """Reads the log from an offset on in chunks: a thread reads, the loop replays.

        `suspected`: the offset of a batch that was found damaged, and whose segment was examined since.
        """
        log = shard.partition.replica.log
        end_offset = shard.last_written_offset + 1
        try:
            chunk = log.read(offset, LOAD_CHUNK_BYTES, end_offset=end_offset, minimum_one_batch=True)
        except DamagedLog as damage:
            self._met_damage(shard, offset, damage)
            return
        except (StorageFailure, ProtocolError) as failure:
            self._loaded(shard, failure)
            return
        if chunk is None:
            self._loaded(shard, None)
            return

        def replay(read: tuple[list[Found], int, bool] | Exception) -> None:
            if shard.state is ShardState.UNLOADED:
                return
            if isinstance(read, Exception):
                self._loaded(shard, read)
                return
            batches, next_offset, damaged = read
            try:
                for found in batches:
                    shard.take_over(found)
            except ValueError as unreadable:
                self._loaded(shard, StorageFailure(f"{shard.partition.name}: {unreadable}"))
                return
            if damaged and offset == next_offset == suspected:
                self._loaded(shard, StorageFailure(f"{shard.partition.name}: the batch at {offset} cannot be read"))
            elif damaged:
                # The next read looks at every batch of the segment, and knows the damage from then on.
                log.segments[log.segments.place_of(next_offset)].suspect = True
                self._load_from(shard, next_offset, suspected=next_offset)
            else:
                self._load_from(shard, next_offset)

        self._loop.effects.blocking(lambda: read_records(chunk), replay)

    def _met_damage(self, shard: S, offset: int, damage: DamagedLog) -> None:
        """Handles records that cannot be read: an operator decides whether the coordinator goes on without them."""
        if self._image.settings.coordinator_damaged_records == "skip":
            known = shard.partition.replica.log.reports.damage
            behind = [each.end_offset for each in known if each.first_offset <= offset < each.end_offset]
            if behind:
                logger.error("%s. The coordinator goes on without them", damage)
                self._load_from(shard, max(behind))
                return
        what_to_do = (
            "The groups or transactional ids of this partition have no coordinator. Restore the file from a backup, "
            "or start the broker with coordinator.damaged.records=skip to go on without these records"
        )
        self._loaded(shard, DamagedLog(f"{damage}. {what_to_do}"))

    def _loaded(self, shard: S, failure: Exception | None) -> None:
        waiting, shard.waiting = shard.waiting, []
        error = ErrorCode.NONE
        if failure is None:
            shard.move(ShardState.LOADED)
            self._after_loading(shard)
        else:
            error = ErrorCode.COORDINATOR_NOT_AVAILABLE
            # The next use loads another shard from the log's start.
            shard.move(ShardState.UNLOADED)
            del self._shards[shard.partition.name.partition]
            self._reports.failure(failure)
        for done in waiting:
            done(error)


def _told(error: ErrorCode) -> ErrorCode:
    """The error code for a coordinator's client when the append to the coordinator's log was not committed."""
    if error in (ErrorCode.REQUEST_TIMED_OUT, ErrorCode.NOT_ENOUGH_REPLICAS):
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    return ErrorCode.NOT_COORDINATOR if error is ErrorCode.NOT_LEADER_OR_FOLLOWER else error
