"""One partition's log: append and read, the two frequent operations.

The log is synchronous, without threads and without a clock: callers bring the time. Rare operations have modules of
their own, by transition: opening, recovery, replay, rolling, flushing, checkpoint, truncation, retention, replacement.
Their functions take the log and change the attributes of log_state.py; no code outside of this folder does.
"""

from bisect import bisect_right
from typing import NamedTuple

from cordwood.log import checkpoint as checkpoints
from cordwood.log import (
    flushing,
    opening,
    reading,
    replacement,
    replay,
    replicated,
    retention,
    rolling,
    timestamps,
    transactions,
    truncation,
)
from cordwood.log.checkpoint import CheckpointTicket
from cordwood.log.flushing import FlushTicket
from cordwood.log.loaded_indexes import SHARED, LoadedIndexes
from cordwood.log.log_state import DescribeTopic, LogState
from cordwood.log.lookup import LogSlice
from cordwood.log.producers import ProducerStates
from cordwood.log.reading import ColdRead as ColdRead
from cordwood.log.record_work import HERE, RecordWork
from cordwood.log.report import DeletedSegment
from cordwood.log.timestamps import FoundTimestamp
from cordwood.model.errors import ErrorCode, ProtocolError
from cordwood.model.identifiers import TopicId, TopicPartition
from cordwood.model.moment import Moment
from cordwood.model.topic_settings import TopicSettings
from cordwood.records.batch import (
    CONTROL_BIT,
    TRANSACTIONAL_BIT,
    assign_offset,
    read_header,
    stamp_append_time,
)
from cordwood.records.control import TransactionMarker, read_transaction_marker
from cordwood.records.validate import check_client_batch
from cordwood.segments.filesystem import Filesystem
from cordwood.segments.leader_epochs import LeaderEpochs
from cordwood.segments.offset_index import MAX_RELATIVE_OFFSET

Batch = memoryview | bytearray

NO_APPEND_TIME_MS = -1
DEFAULT_PRODUCER_EXPIRATION_MS = 86_400_000


class Appended(NamedTuple):
    """The offsets of an appended batch; of a duplicate, the offsets of its first append."""

    base_offset: int
    last_offset: int
    append_time_ms: int
    """-1 if the records keep their own timestamps (CreateTime)."""
    duplicate: bool


class Log(LogState):
    __slots__ = ()

    @classmethod
    def open(
        cls,
        filesystem: Filesystem,
        directory: str,
        partition: TopicPartition,
        settings: TopicSettings,
        *,
        recovery_point: int,
        clean: bool,
        now: Moment,
        log_start_offset: int = 0,
        producer_expiration_ms: int = DEFAULT_PRODUCER_EXPIRATION_MS,
        topic_id: TopicId | None = None,
        ever_compacted: bool = False,
        recovery_point_lost: bool = False,
        loaded_indexes: LoadedIndexes = SHARED,
        describe_topic: DescribeTopic = lambda topic_id: None,
        witnessed_end_offset: int = 0,
    ) -> "Log":
        """The log in this directory, recovered after an unclean stop. No file is created before the first append."""
        log = cls(
            filesystem,
            directory,
            partition,
            settings,
            recovery_point=recovery_point,
            log_start_offset=log_start_offset,
            now=now,
            producer_expiration_ms=producer_expiration_ms,
            topic_id=topic_id,
            ever_compacted=ever_compacted,
            recovery_point_lost=recovery_point_lost,
            loaded_indexes=loaded_indexes,
            describe_topic=describe_topic,
            witnessed_end_offset=witnessed_end_offset,
        )
        opening.open_files(log, clean=clean)
        return log

    # State that the first use reads from the end of the log

    @property
    def leader_epochs(self) -> LeaderEpochs:
        if not self.ready:
            opening.make_ready(self)
        if self._leader_epochs is None:
            self._leader_epochs = LeaderEpochs()
        return self._leader_epochs

    @property
    def producers(self) -> ProducerStates:
        if not self.ready:
            opening.make_ready(self)
        if self._producers is None:
            self._producers = ProducerStates()
        return self._producers

    @property
    def producer_count(self) -> int:
        """The number of remembered producers; 0 if none was read yet."""
        return 0 if self._producers is None else len(self._producers)

    def last_stable_offset(self, high_watermark: int) -> int:
        """The end for read_committed readers, given the high watermark."""
        if self.ready and self._producers is None:
            return high_watermark
        return self.producers.last_stable_offset(high_watermark)

    def committed_to(self, high_watermark: int) -> None:
        """Forgets ended transactions below the new high watermark."""
        if self._producers is not None:
            self._producers.committed_to(high_watermark)

    # Append

    def append(self, batch: Batch, *, leader_epoch: int, now: Moment) -> Appended:
        """Appends a client's batch, or refuses it with a ProtocolError. The offsets are written into `batch`."""
        header = check_client_batch(batch, self._settings, now.wall_ms)
        if not self.ready:
            opening.make_ready(self)
        producer_id = header.producer_id
        if producer_id >= 0:
            repeated = self.producers.check(header)
            if repeated is not None:
                append_time_ms = repeated.timestamp_ms if self.log_append_time else NO_APPEND_TIME_MS
                return Appended(repeated.first_offset, repeated.last_offset, append_time_ms, True)
        max_timestamp_ms, append_time_ms = header.max_timestamp, NO_APPEND_TIME_MS
        if self.log_append_time:
            stamp_append_time(batch, now.wall_ms)
            max_timestamp_ms = append_time_ms = now.wall_ms
        base_offset = self.log_end_offset
        last_offset = base_offset + header.last_offset_delta
        self.write(batch, base_offset, last_offset, max_timestamp_ms, leader_epoch, now.wall_ms)
        if producer_id >= 0:
            self.producers.appended(
                producer_id,
                header.producer_epoch,
                header.base_sequence,
                base_offset,
                last_offset,
                max_timestamp_ms,
                now.boot_ms,
                bool(header.attributes & TRANSACTIONAL_BIT),
            )
        return Appended(base_offset, last_offset, append_time_ms, False)

    def append_internal(
        self, batch: Batch, *, leader_epoch: int, now: Moment, marker: TransactionMarker | None = None
    ) -> Appended:
        """Appends a batch that this broker built: a coordinator's records or a control marker. Its bytes are trusted.

        `marker` is the content of the batch, if the caller knows it.
        """
        header = read_header(batch)
        if not self.ready:
            opening.make_ready(self)
        if marker is None and header.attributes & CONTROL_BIT and header.attributes & TRANSACTIONAL_BIT:
            marker = read_transaction_marker(batch)
        if marker is not None:
            self.producers.check_marker(header, marker)
        base_offset = self.log_end_offset
        last_offset = base_offset + header.last_offset_delta
        self.write(batch, base_offset, last_offset, header.max_timestamp, leader_epoch, now.wall_ms)
        if marker is not None:
            aborted = self.producers.ended(header, marker, base_offset, now.boot_ms)
            if aborted is not None:
                assert self.active is not None
                self.active.load_transactions().append(aborted)
        elif header.attributes & TRANSACTIONAL_BIT:
            self.producers.replay(read_header(batch), batch, now.boot_ms)
        return Appended(base_offset, last_offset, NO_APPEND_TIME_MS, False)

    def append_replicated(self, batches: Batch, *, now: Moment) -> Appended:
        """Appends whole batches as a leader has them, offsets and epochs included. For followers only.

        A leader's compacted log has gaps, so offsets must rise but need not be contiguous.
        """
        found = replicated.check(self, batches)
        for position, header in found:
            replicated.append(self, header, memoryview(batches)[position : position + header.size], now)
        return Appended(found[0][1].base_offset, found[-1][1].last_offset, NO_APPEND_TIME_MS, False)

    def write(
        self,
        batch: Batch,
        base_offset: int,
        last_offset: int,
        max_timestamp_ms: int,
        leader_epoch: int,
        wall_ms: int,
    ) -> None:
        """Writes the batch at the end of the log. If the disk refuses it, the log stays as it was."""
        size = len(batch)
        segment = self.active
        if (
            segment is None
            or segment.size + size > self.segment_bytes
            or wall_ms >= segment.roll_at_ms
            or segment.full
            or last_offset - segment.base_offset > MAX_RELATIVE_OFFSET
        ):
            segment = rolling.segment_for_append(self, size, base_offset, last_offset, wall_ms)
        assign_offset(batch, base_offset, leader_epoch)
        if leader_epoch != self._latest_epoch:
            self.record_leader_epoch(leader_epoch, base_offset)
        position = segment.size
        segment.file.append(batch)
        segment.size = position + size
        segment.note_recent(base_offset, position)
        indexes = segment.indexes
        assert indexes is not None
        if indexes.note(position, size, last_offset, max_timestamp_ms):
            rolling.note_index_entry(self, segment)
        self.log_end_offset = last_offset + 1

    def record_leader_epoch(self, leader_epoch: int, start_offset: int | None = None) -> None:
        """Records the start of a leader's epoch, even if the leader never writes in it."""
        if leader_epoch < 0:
            return
        start_offset = self.log_end_offset if start_offset is None else start_offset
        if replay.note_epoch(self.leader_epochs, leader_epoch, start_offset):
            self.epochs_changed = True
        self._latest_epoch = leader_epoch

    # Read

    def read(
        self, offset: int, max_bytes: int, *, end_offset: int, minimum_one_batch: bool, may_block: bool = True
    ) -> LogSlice | None:
        """Whole batches from the batch with the offset on, at most max_bytes, up to the batch that holds end_offset.

        None if there are no such batches. Raises OFFSET_OUT_OF_RANGE, DamagedLog, and with may_block=False ColdRead if
        the answer is not in memory.
        """
        if offset < self.log_start_offset or offset > self.log_end_offset:
            raise ProtocolError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"Offset {offset} is outside of {self.partition}: {self.log_start_offset} to {self.log_end_offset}.",
            )
        if offset >= end_offset:
            return None
        segment = self.active
        if segment is not None and (recent := segment.recent_offsets):
            first = bisect_right(recent, offset) - 1
            if first >= 0:
                return reading.read_recent(self, segment, first, max_bytes, end_offset, minimum_one_batch)
        if not self.ready:
            opening.make_ready(self)
        return reading.search(self, offset, max_bytes, end_offset, minimum_one_batch, may_block, True)

    def aborted_transactions(self, from_offset: int, end_offset: int) -> list[tuple[int, int]]:
        """Producer id and first offset of the aborted transactions that touch these offsets."""
        return transactions.aborted_between(self, from_offset, end_offset)

    def aborted_in(self, found: LogSlice, from_offset: int, end_offset: int) -> list[tuple[int, int]]:
        """The aborted transactions that touch the slice; all later ones would be too many to send each time."""
        return transactions.aborted_between(self, from_offset, min(end_offset, transactions.end_of_slice(self, found)))

    def offset_for_timestamp(self, timestamp_ms: int, *, end_offset: int) -> FoundTimestamp | None:
        """The first record below end_offset with this or a later timestamp."""
        return self.timestamp_search(timestamp_ms, end_offset=end_offset).run()

    def timestamp_search(
        self, timestamp_ms: int, *, end_offset: int, apart: RecordWork = HERE
    ) -> timestamps.TimestampSearch:
        """The search of `offset_for_timestamp`, to be run in a thread. `apart` opens large batches."""
        if not self.ready:
            opening.make_ready(self)
        return timestamps.TimestampSearch(self, timestamp_ms, end_offset, apart)

    def max_timestamp_offset(self, *, end_offset: int, apart: RecordWork = HERE) -> FoundTimestamp | None:
        """The first record with the largest timestamp below end_offset."""
        if not self.ready:
            opening.make_ready(self)
        return timestamps.find_latest(self, end_offset, apart)

    # Transitions: each has its module

    def begin_flush(self) -> FlushTicket | None:
        """The ticket of a flush; None if all is durable. ticket.sync() follows in any thread, then finish_flush."""
        return flushing.begin_flush(self)

    def finish_flush(self, ticket: FlushTicket) -> None:
        flushing.finish_flush(self, ticket)

    def begin_checkpoint(self) -> CheckpointTicket | None:
        """The ticket of a checkpoint; None if none is due. write_checkpoints follows, then finish_checkpoint."""
        return checkpoints.begin_checkpoint(self)

    def finish_checkpoint(self, ticket: CheckpointTicket) -> None:
        checkpoints.finish_checkpoint(self, ticket)

    def checkpoint(self) -> None:
        """A whole checkpoint, waiting for the disk: afterwards the recovery point is the log's end.

        For a log outside of a data directory: the caller keeps the recovery point.
        """
        ticket = self.begin_checkpoint()
        if ticket is not None:
            checkpoints.write_checkpoints(self.filesystem, [ticket])
            self.finish_checkpoint(ticket)
            self.saved_recovery_point = self.recovery_point

    def roll_if_due(self, wall_ms: int) -> bool:
        """Closes the active segment if it is old enough; the next append begins a new one."""
        return rolling.roll_if_due(self, wall_ms)

    def truncate_to(self, offset: int) -> None:
        """Cuts all batches that end at or after this offset."""
        truncation.truncate_to(self, offset)

    def restart_at(self, offset: int) -> None:
        """Drops all batches; the next append gets this offset."""
        truncation.restart_at(self, offset)

    def delete_records_before(self, offset: int) -> None:
        """Moves the log's start to this offset, and drops segments that lie wholly before it."""
        truncation.delete_records_before(self, offset)

    def apply_retention(self, now: Moment, *, limit_offset: int) -> list[DeletedSegment]:
        """Drops segments beyond the limits of age and size, at most retention.DROPPED_AT_ONCE, but none that reaches
        beyond limit_offset."""
        return retention.apply(self, now, limit_offset)

    def remove_deleted(self, boot_ms: int) -> None:
        """Frees the disk of segments that were dropped file.delete.delay.ms ago, waiting for the disk."""
        for path in self.take_due_deletions(boot_ms):
            checkpoints.remove_if_there(self.filesystem, path)

    def take_due_deletions(self, boot_ms: int) -> list[str]:
        """The files of segments that were dropped file.delete.delay.ms ago, which the caller removes."""
        return retention.take_due_deletions(self, boot_ms)

    def replace_segments(self, old: list[int], new: list[int]) -> None:
        """Puts `.cleaned` segments in the place of old ones, atomically; both by base offset."""
        replacement.replace_segments(self, old, new)

    def close(self) -> None:
        """Closes the handles. A clean stop needs a checkpoint before."""
        rolling.give_back_reserve(self)
        for segment in self.segments:
            segment.file.close()
            self.loaded_indexes.forget(segment)
        for file in self.unsynced_files:
            file.close()

    def condemn(self) -> str | None:
        """Renames the log's directory for a deletion. Returns the path to remove; None without a directory."""
        return retention.condemn(self)

    def delete(self) -> None:
        """Removes the log and its files, waiting for the disk."""
        path = self.condemn()
        if path is not None:
            self.filesystem.sync_directory(path.rpartition("/")[0])
            self.filesystem.remove_tree(path)
