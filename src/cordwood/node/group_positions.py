"""The coordinator of committed positions on this node: one `Positions` per partition of __consumer_offsets.

A shard is loaded from its log when it is first asked for, and requests wait for that. What a request reads or wrote is
answered when the shard's log has it committed.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING

from cordwood.groups.offset_records import Position, UnreadableRecord
from cordwood.groups.positions import Commit, Positions, Record, coordinating_partition
from cordwood.log.lookup import LogSlice
from cordwood.model.errors import ErrorCode, ProtocolError, StorageFailure
from cordwood.model.identifiers import CONSUMER_OFFSETS_TOPIC, TopicPartition
from cordwood.node.partition import Partition
from cordwood.records.batch import batches_in
from cordwood.records.build import build_batch
from cordwood.records.records import records_in

if TYPE_CHECKING:
    from cordwood.node.node import Node

LOAD_CHUNK_BYTES = 1 << 20
COMMIT_TIMEOUT_MS = 5_000
MINUTE_MS = 60_000

Loaded = Callable[[ErrorCode], None]


class Shard:
    """The groups of one partition of __consumer_offsets."""

    __slots__ = ("last_written_offset", "loaded", "partition", "positions", "waiting")

    def __init__(self, partition: Partition) -> None:
        self.partition = partition
        self.positions = Positions()
        self.loaded = False
        self.waiting: list[Loaded] = []
        self.last_written_offset = -1


class GroupPositions:
    def __init__(self, node: "Node") -> None:
        self._node = node
        self._shards: dict[int, Shard] = {}
        self._waiting_for_topic: list[Callable[[ProtocolError | None], None]] = []

    def when_topic_exists(self, done: Callable[[ProtocolError | None], None]) -> None:
        """The internal topic is made when somebody first looks for a coordinator."""
        # Who comes while others still wait must not overtake them: the later of two commits has to win.
        if CONSUMER_OFFSETS_TOPIC in self._node.topics and not self._waiting_for_topic:
            done(None)
            return
        self._waiting_for_topic.append(done)
        if len(self._waiting_for_topic) > 1:
            return

        def created(error: ProtocolError | None) -> None:
            waiting, self._waiting_for_topic = self._waiting_for_topic, []
            for callback in waiting:
                callback(error)

        self._node.create_internal_topic(CONSUMER_OFFSETS_TOPIC, created)

    def commit(self, group: str, commits: list[Commit], now_ms: int, done: Callable[[list[ErrorCode]], None]) -> None:
        """Remembers the positions; `done` gets one error code for each of them, once they are committed."""

        def loaded(error: ErrorCode) -> None:
            if error is not ErrorCode.NONE:
                done([error] * len(commits))
                return
            shard = self._shard_of(group)
            limit = self._node.settings.offset_metadata_max_bytes
            outcome = shard.positions.commit(group, commits, metadata_max_bytes=limit, now_ms=now_ms)

            def committed(error: ErrorCode) -> None:
                done([error if asked is ErrorCode.NONE else asked for asked in outcome.errors])

            self._write(shard, outcome.records, now_ms, committed)

        self._when_loaded(group, loaded)

    def fetch(
        self, group: str, now_ms: int, done: Callable[[dict[TopicPartition, Position] | ErrorCode], None]
    ) -> None:
        """All positions of a group, as committed by now."""

        def loaded(error: ErrorCode) -> None:
            if error is not ErrorCode.NONE:
                done(error)
                return
            shard = self._shard_of(group)
            found = dict(shard.positions.of_group(group))

            def committed(error: ErrorCode) -> None:
                done(found if error is ErrorCode.NONE else _coordinator_error(error))

            self._when_committed(shard, now_ms, committed)

        self._when_loaded(group, loaded)

    def topic_deleted(self, topic: str, now_ms: int) -> None:
        """Positions in a topic that is gone go with it."""
        self._forget(lambda positions: positions.of_deleted_topic(topic), now_ms)

    def expire(self, now_ms: int) -> None:
        retention_ms = self._node.settings.offsets_retention_minutes * MINUTE_MS
        self._forget(lambda positions: positions.expired(now_ms, retention_ms), now_ms)

    def _forget(self, tombstones: Callable[[Positions], list[Record]], now_ms: int) -> None:
        for index, partition in enumerate(self._node.topics.get(CONSUMER_OFFSETS_TOPIC, ())):
            if partition.opened is None and not self._node.has_data(partition):
                continue
            shard = self._shard(index, partition)

            def loaded(error: ErrorCode, shard: Shard = shard) -> None:
                if error is ErrorCode.NONE and (records := tombstones(shard.positions)):
                    self._write(shard, records, now_ms, lambda error: None)

            self._load_then(shard, loaded)

    def _write(self, shard: Shard, records: list[Record], now_ms: int, done: Callable[[ErrorCode], None]) -> None:
        """Appends, replays what was appended, and calls back when it is committed."""
        if not records:
            done(ErrorCode.NONE)
            return
        batch = build_batch((now_ms, key, value, ()) for key, value in records)
        try:
            appended = self._node.append_internal(shard.partition, batch, now_ms)
        except StorageFailure as failure:
            self._node.report_storage_failure(failure)
            done(ErrorCode.COORDINATOR_NOT_AVAILABLE)
            return
        for key, value in records:
            shard.positions.replay(key, value)
        shard.last_written_offset = appended.last_offset
        self._when_committed(shard, now_ms, lambda error: done(_coordinator_error(error)))

    def _when_committed(self, shard: Shard, now_ms: int, done: Callable[[ErrorCode], None]) -> None:
        if shard.partition.replica.high_watermark > shard.last_written_offset:
            done(ErrorCode.NONE)
        else:
            self._node.when_committed(shard.partition, shard.last_written_offset, now_ms + COMMIT_TIMEOUT_MS, done)

    def _when_loaded(self, group: str, done: Loaded) -> None:
        def topic_exists(error: ProtocolError | None) -> None:
            if error is not None:
                done(ErrorCode.COORDINATOR_NOT_AVAILABLE)
            else:
                self._load_then(self._shard_of(group), done)

        self.when_topic_exists(topic_exists)

    def _shard_of(self, group: str) -> Shard:
        partitions = self._node.topics[CONSUMER_OFFSETS_TOPIC]
        index = coordinating_partition(group, len(partitions))
        return self._shard(index, partitions[index])

    def _shard(self, index: int, partition: Partition) -> Shard:
        shard = self._shards.get(index)
        if shard is None:
            shard = self._shards[index] = Shard(partition)
        return shard

    def _load_then(self, shard: Shard, done: Loaded) -> None:
        if shard.loaded:
            done(ErrorCode.NONE)
            return
        shard.waiting.append(done)
        if len(shard.waiting) == 1:
            shard.last_written_offset = shard.partition.replica.log.log_end_offset - 1
            self._load_from(shard, shard.partition.replica.log.log_start_offset)

    def _load_from(self, shard: Shard, offset: int) -> None:
        """Reads on from an offset, a chunk at a time, in a thread; replays in the loop."""
        log = shard.partition.replica.log
        end_offset = shard.last_written_offset + 1
        try:
            chunk = log.read(offset, LOAD_CHUNK_BYTES, end_offset=end_offset, minimum_one_batch=True)
        except (StorageFailure, ProtocolError) as failure:
            self._loaded(shard, failure)
            return
        if chunk is None:
            self._loaded(shard, None)
            return

        def replay(read: tuple[list[Record], int] | Exception) -> None:
            if isinstance(read, Exception):
                self._loaded(shard, read)
                return
            records, next_offset = read
            for key, value in records:
                shard.positions.replay(key, value)
            self._load_from(shard, next_offset)

        self._node.effects.blocking(lambda: _read_records(chunk), replay)

    def _loaded(self, shard: Shard, failure: Exception | None) -> None:
        waiting, shard.waiting = shard.waiting, []
        error = ErrorCode.NONE
        if failure is None:
            shard.loaded = True
        else:
            error = ErrorCode.COORDINATOR_NOT_AVAILABLE
            shard.positions = Positions()
            self._node.report_storage_failure(failure)
        for done in waiting:
            done(error)


def _read_records(chunk: LogSlice) -> tuple[list[Record], int]:
    """Keys and values of the whole batches in a slice, and the offset after them."""
    data = chunk.file.read(chunk.position, chunk.length)
    records: list[Record] = []
    next_offset = chunk.base_offset
    for position, header in batches_in(data):
        if not header.control:
            for record in records_in(memoryview(data)[position : position + header.size]):
                if record.key is None:
                    raise UnreadableRecord(f"the record at offset {record.offset} has no key")
                records.append((bytes(record.key), None if record.value is None else bytes(record.value)))
        next_offset = header.next_offset
    return records, next_offset


def _coordinator_error(error: ErrorCode) -> ErrorCode:
    """What a client of a coordinator is told when the append to its log did not become safe."""
    if error in (ErrorCode.REQUEST_TIMED_OUT, ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND):
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    return error
