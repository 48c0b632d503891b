"""One partition's log, put together from the parts that own its state: append and read, the two frequent operations.

| part | owns |
| --- | --- |
| `directory` | the log's place, its topic, and names that are not durable yet |
| `segments` | the segments and their files |
| `offsets` | start, end, durable end, recovery point |
| `replayed` | the state that batches give: producers, transactions, leader epochs |
| `saved` | producer snapshots on disk, and the duties of the next checkpoint |
| `reports` | damage that is known, and the report of opening the log |
| `aborts` | aborted transactions, found through the segments' indexes |

The log is synchronous, without threads and without a clock: callers bring the time. Each rare operation has its module:
opening, recovery, replay, rolling, flushing, checkpoint, truncation, retention, replacement. Such a module takes the
parts that it changes, never the log. No code outside of this folder changes a part.
"""

from bisect import bisect_right
from collections.abc import Callable
from typing import NamedTuple

from cordwood.log.opening.opening import Opening
from cordwood.log.parts import replay
from cordwood.log.parts.loaded_indexes import SHARED, LoadedIndexes
from cordwood.log.parts.offsets import LogOffsets
from cordwood.log.parts.partition_directory import DescribeTopic, PartitionDirectory
from cordwood.log.parts.replayed import Replayed
from cordwood.log.parts.report import DeletedSegment, LogReports
from cordwood.log.parts.saved_state import SavedState
from cordwood.log.parts.segments import LogSegments
from cordwood.log.reading import reading, timestamps
from cordwood.log.reading.aborts import Aborts
from cordwood.log.reading.lookup import LogSlice
from cordwood.log.reading.reading import ColdRead as ColdRead
from cordwood.log.reading.record_work import HERE, RecordWork
from cordwood.log.reading.timestamps import FoundTimestamp
from cordwood.log.rewriting import mending, replacement
from cordwood.log.upkeep import checkpoint as checkpoints
from cordwood.log.upkeep import flushing, retention, rolling, truncation
from cordwood.log.upkeep.checkpoint import CheckpointTicket
from cordwood.log.upkeep.flushing import FlushTicket
from cordwood.log.upkeep.replicated import check_batches
from cordwood.model.errors import ErrorCode, ProtocolError
from cordwood.model.identifiers import TopicId, TopicPartition
from cordwood.model.moment import Moment
from cordwood.model.settings.topic_settings import TopicSettings
from cordwood.records.batch import (
    CONTROL_BIT,
    TRANSACTIONAL_BIT,
    assign_offset,
    read_header,
    stamp_append_time,
)
from cordwood.records.control import TransactionMarker, read_transaction_marker
from cordwood.records.validate import check_client_batch
from cordwood.segments.dropped_deletions import Dropped
from cordwood.segments.filesystem import Filesystem
from cordwood.segments.offset_index import MAX_RELATIVE_OFFSET

Batch = memoryview | bytearray

NO_APPEND_TIME_MS = -1


class Appended(NamedTuple):
    """The offsets of an appended batch; of a duplicate, the offsets of its first append."""

    base_offset: int
    last_offset: int
    append_time_ms: int
    """-1 if the records keep their own timestamps (CreateTime)."""
    duplicate: bool


class Log:
    __slots__ = (
        "aborts",
        "acks_mean_disk",
        "directory",
        "log_append_time",
        "offsets",
        "partition",
        "replayed",
        "reports",
        "saved",
        "segments",
        "settings",
    )

    def __init__(
        self,
        segments: LogSegments,
        offsets: LogOffsets,
        replayed: Replayed,
        saved: SavedState,
        reports: LogReports,
    ) -> None:
        self.directory = segments.directory
        self.partition = segments.directory.partition
        self.segments = segments
        self.offsets = offsets
        self.replayed = replayed
        self.saved = saved
        self.reports = reports
        self.aborts = Aborts(segments, offsets, saved)
        self._take_over(segments.settings)

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
        topic_id: TopicId | None = None,
        ever_compacted: bool = False,
        recovery_point_lost: bool = False,
        loaded_indexes: LoadedIndexes = SHARED,
        describe_topic: DescribeTopic = lambda topic_id: None,
        witnessed_end_offset: int = 0,
        start_is_known: bool = False,
        first_file: int | None = None,
    ) -> "Log":
        """The log in this directory, recovered after an unclean stop. No file is created before the first append.
        `start_is_known`: files from `log_start_offset` on that are not there were lost. `first_file`: the base offset
        of the log's first file, from a witness; None: unknown."""
        place = PartitionDirectory(filesystem, directory, partition, topic_id, describe_topic)
        offsets = LogOffsets(
            log_start_offset,
            recovery_point,
            recovery_point_lost=recovery_point_lost,
            witnessed_end=witnessed_end_offset,
        )
        segments = LogSegments(place, offsets, settings, loaded_indexes, now, ever_compacted=ever_compacted)
        replayed, saved, reports = Replayed(), SavedState(place), LogReports(partition, offsets)
        opening = Opening(
            segments, offsets, replayed, saved, reports, start_is_known=start_is_known, first_file=first_file
        )
        opening.open_files(clean=clean)
        return cls(segments, offsets, replayed, saved, reports)

    def __repr__(self) -> str:
        return f"Log({self.partition}, offsets {self.offsets.start} to {self.offsets.end})"

    def change_settings(self, settings: TopicSettings) -> None:
        self.segments.change_settings(settings)
        self._take_over(settings)

    def _take_over(self, settings: TopicSettings) -> None:
        """Keeps the settings that every append or read asks for."""
        self.settings = settings
        self.log_append_time = settings.log_append_time
        self.acks_mean_disk = settings.acks_mean_disk

    def begin_epoch(self, leader_epoch: int) -> None:
        """Records that a leader's epoch begins at the log's end. The first use after a clean stop may move that end."""
        if not self.replayed.ready:
            self.replayed.make_ready()
        self.replayed.begin_epoch(leader_epoch, self.offsets.end)

    # Append

    def append(self, batch: Batch, *, leader_epoch: int, now: Moment) -> Appended:
        """Appends a client's batch, or refuses it with a ProtocolError. The offsets are written into `batch`."""
        header = check_client_batch(batch, self.settings, now.wall_ms)
        replayed = self.replayed
        if not replayed.ready:
            replayed.make_ready()
        producer_id = header.producer_id
        producers = replayed.producers if producer_id >= 0 else None
        if producers is not None:
            repeated = producers.check(header)
            if repeated is not None:
                append_time_ms = repeated.timestamp_ms if self.log_append_time else NO_APPEND_TIME_MS
                return Appended(repeated.first_offset, repeated.last_offset, append_time_ms, True)
        max_timestamp_ms, append_time_ms = header.max_timestamp, NO_APPEND_TIME_MS
        if self.log_append_time:
            stamp_append_time(batch, now.wall_ms)
            max_timestamp_ms = append_time_ms = now.wall_ms
        base_offset = self.offsets.end
        last_offset = base_offset + header.last_offset_delta
        assign_offset(batch, base_offset, leader_epoch)
        self._write(batch, base_offset, last_offset, max_timestamp_ms, leader_epoch, now.wall_ms)
        if producers is not None:
            producers.appended(
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
        replayed = self.replayed
        if not replayed.ready:
            replayed.make_ready()
        if marker is None and header.attributes & CONTROL_BIT and header.attributes & TRANSACTIONAL_BIT:
            marker = read_transaction_marker(batch)
        if marker is not None:
            replayed.producers.check_marker(header, marker)
        base_offset = self.offsets.end
        last_offset = base_offset + header.last_offset_delta
        assign_offset(batch, base_offset, leader_epoch)
        self._write(batch, base_offset, last_offset, header.max_timestamp, leader_epoch, now.wall_ms)
        if marker is not None:
            aborted = replayed.producers.ended(header, marker, base_offset, now.boot_ms)
            if aborted is not None:
                assert self.segments.active is not None
                self.segments.active.load_transactions().append(aborted)
        elif header.attributes & TRANSACTIONAL_BIT:
            replayed.producers.replay(read_header(batch), batch, now.boot_ms)
        return Appended(base_offset, last_offset, NO_APPEND_TIME_MS, False)

    def append_replicated(self, batches: Batch, *, leader_epoch: int, now: Moment) -> Appended:
        """Appends whole batches as the leader of this epoch has them, offsets and epochs included. For followers only.

        A leader's compacted log has gaps, so offsets must rise but need not be contiguous. No sound batch is refused:
        the leader has it.
        """
        replayed = self.replayed
        if not replayed.ready:
            replayed.make_ready()
        found = check_batches(batches, self.offsets.end, leader_epoch)
        for position, header in found:
            batch = memoryview(batches)[position : position + header.size]
            gap = header.base_offset != self.offsets.end
            epoch = header.partition_leader_epoch
            self._write(batch, header.base_offset, header.last_offset, header.max_timestamp, epoch, now.wall_ms)
            active = self.segments.active
            assert active is not None
            if gap:
                # Recent places hold only contiguous offsets.
                active.forget_recent()
            if header.producer_id >= 0:
                aborted = replayed.producers.replay(header, batch, now.boot_ms)
                if aborted is not None:
                    active.load_transactions().append(aborted)
        return Appended(found[0][1].base_offset, found[-1][1].last_offset, NO_APPEND_TIME_MS, False)

    def _write(
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
        segments = self.segments
        segment = segments.active
        if (
            segment is None
            or segment.size + size > segments.segment_bytes
            or wall_ms >= segment.roll_at_ms
            or segment.full
            or last_offset - segment.base_offset > MAX_RELATIVE_OFFSET
        ):
            segment = rolling.segment_for_append(
                segments,
                self.offsets,
                self.replayed,
                self.saved,
                size=size,
                base_offset=base_offset,
                last_offset=last_offset,
                wall_ms=wall_ms,
            )
        if leader_epoch != self.replayed.latest_epoch:
            self.replayed.begin_epoch(leader_epoch, base_offset)
        position = segment.size
        segment.file.append(batch)
        segment.size = position + size
        segment.note_recent(base_offset, position)
        indexes = segment.indexes
        assert indexes is not None
        if indexes.note(position, size, last_offset, max_timestamp_ms):
            rolling.note_index_entry(segment, self.settings.segment_index_bytes)
        self.offsets.end = last_offset + 1

    @property
    def lost(self) -> bool:
        """True if the log had records, and all of its files are gone."""
        return self.offsets.end_in_doubt and not self.segments.all

    @property
    def in_doubt(self) -> bool:
        """True if the log may lack records at its beginning or at its end that other replicas have."""
        return self.offsets.start_in_doubt or self.offsets.end_in_doubt

    def start_is_known(self) -> None:
        """Confirms the log's start: no replica has the records before it, or they were given up."""
        self.offsets.start_in_doubt = False

    def end_is_known(self) -> None:
        """Confirms the log's end: a leader's records go on from it."""
        self.offsets.end_in_doubt = False

    def accept_lost_end(self) -> None:
        """Goes on without the records missing at the log's end: no replica can have them, or they were given up."""
        offsets = self.offsets
        if self.lost:
            self.delete_records_before(offsets.end)
            # The next start must not miss the files again.
            offsets.lower_recovery_point(offsets.end)
        offsets.end_in_doubt = False

    # Read

    def read(
        self, offset: int, max_bytes: int, *, end_offset: int, minimum_one_batch: bool, may_block: bool = True
    ) -> LogSlice | None:
        """Whole batches from the batch with the offset on, at most max_bytes, up to the batch that holds end_offset.

        None if there are no such batches. Raises OFFSET_OUT_OF_RANGE, DamagedLog, and with may_block=False ColdRead if
        the answer is not in memory.
        """
        offsets = self.offsets
        log_end_offset = offsets.end
        if offset < offsets.start or offset > log_end_offset:
            raise ProtocolError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"Offset {offset} is outside of {self.partition}: {offsets.start} to {log_end_offset}.",
            )
        if offset >= end_offset:
            return None
        segments = self.segments
        segment = segments.active
        if segment is not None and (recent := segment.recent_offsets):
            first = bisect_right(recent, offset) - 1
            if first >= 0:
                return reading.read_recent(segment, first, max_bytes, end_offset, log_end_offset, minimum_one_batch)
        if not self.replayed.ready:
            self.replayed.make_ready()
        search = reading.Search(segments, offsets, self.saved, self.reports)
        return search.run(offset, max_bytes, end_offset, minimum_one_batch, may_block, True)

    def timestamp_search(
        self, timestamp_ms: int, *, end_offset: int, apart: RecordWork = HERE
    ) -> timestamps.TimestampSearch:
        """The search for the first record below end_offset with this or a later timestamp, to be run in any thread.
        `apart` opens large batches."""
        if not self.replayed.ready:
            self.replayed.make_ready()
        return timestamps.TimestampSearch(self.segments, self.offsets, timestamp_ms, end_offset, apart)

    def max_timestamp_offset(self, *, end_offset: int, apart: RecordWork = HERE) -> FoundTimestamp | None:
        """The first record with the largest timestamp below end_offset."""
        if not self.replayed.ready:
            self.replayed.make_ready()
        return timestamps.find_latest(self.segments, self.offsets, end_offset, apart)

    # Transitions: each has its module

    def begin_flush(self) -> FlushTicket | None:
        """The ticket of a flush; None if all is durable. ticket.sync() follows in any thread, then ticket.finish()."""
        return flushing.begin_flush(self.segments, self.offsets)

    def begin_checkpoint(self) -> CheckpointTicket | None:
        """The ticket of a checkpoint; None if none is due. write_checkpoints follows, then ticket.finish()."""
        return checkpoints.begin_checkpoint(self.segments, self.offsets, self.replayed, self.saved)

    def checkpoint(self) -> None:
        """Makes a whole checkpoint, waiting for the disk: afterwards the recovery point is the log's end.

        For a log outside of a data directory: the caller keeps the recovery point.
        """
        ticket = self.begin_checkpoint()
        if ticket is not None:
            checkpoints.write_checkpoints(self.directory.filesystem, [ticket])
            ticket.finish()
            self.offsets.saved_recovery_point = self.offsets.recovery_point

    def roll_if_due(self, wall_ms: int) -> bool:
        """Closes the active segment if it is old enough; the next append begins a new one."""
        return rolling.roll_if_due(self.segments, self.offsets, self.replayed, self.saved, wall_ms)

    def roll(self) -> None:
        """Closes the active segment, whatever its age; the next append begins a new one."""
        rolling.close_active(self.segments, self.offsets, self.replayed, self.saved)

    def truncate_to(self, offset: int) -> None:
        """Cuts all batches that end at or after this offset."""
        self._truncation().truncate_to(offset)

    def restart_at(self, offset: int) -> None:
        """Drops all batches; the next append gets this offset."""
        self._truncation().restart_at(offset)

    def _truncation(self) -> truncation.Truncation:
        return truncation.Truncation(self.segments, self.offsets, self.replayed, self.saved, self.reports)

    def delete_records_before(self, offset: int) -> None:
        """Moves the log's start to this offset, and drops segments that lie wholly before it."""
        truncation.delete_records_before(self.segments, self.offsets, self.replayed, self.saved, offset)

    def apply_retention(self, now: Moment, *, limit_offset: int) -> list[DeletedSegment]:
        """Drops segments beyond the limits of age and size, at most retention.DROPPED_AT_ONCE, but none that reaches
        beyond limit_offset."""
        return retention.apply(self.segments, self.offsets, self.replayed, self.saved, now, limit_offset)

    def replace_segments(self, old: list[int], new: list[int]) -> None:
        """Puts `.cleaned` segments in the place of old ones, atomically; both by base offset."""
        replacement.replace_segments(self.segments, self.offsets, self.saved, old, new)

    def take_over_dropped(self, dropped: Dropped) -> None:
        """Notes, waiting for the disk, that this empty log becomes a copy of one that lacks these deletions."""
        self.replayed.epochs_changed |= self.directory.make()
        self.segments.save_dropped(dropped)

    def read_sound(self, offset: int, end_offset: int, max_bytes: int) -> bytes:
        """Checked batches from the batch with the offset on, for the repair of another replica. In any thread."""
        return mending.read_sound(self.segments, self.offsets, self.saved, self.reports, offset, end_offset, max_bytes)

    def put_mended(self, base_offset: int, *, lacks_aborts: bool) -> None:
        """Puts the mended copy of a segment in its place, atomically. `lacks_aborts`: its transaction index has to be
        rebuilt."""
        place = self.segments.place_of(base_offset)
        damaged = self.segments[place]
        assert damaged.base_offset == base_offset
        damaged_path = damaged.file.path
        self.replace_segments([base_offset], [base_offset])
        self.reports.forget_holes(damaged_path)
        if lacks_aborts:
            replay.rebuild_transactions(self.segments, self.offsets, self.saved, place)

    def close(self) -> None:
        """Closes the handles. A clean stop needs a checkpoint before."""
        self.segments.close()
        self.directory.close_unsynced_files()

    def let_go(self) -> None:
        """Drops the listeners of a deleted log. The listeners refer to the log: the circle would keep its objects, and
        in memory its records, until the interpreter's rare search for circles."""
        self.offsets.let_go()
        self.reports.on_late_report = None

    def condemn(self, rename: Callable[[], str | None] | None = None) -> str | None:
        """Renames the log's directory for a deletion, or by `rename`. Returns the new path; None without a
        directory."""
        return retention.condemn(self.segments, self.offsets, rename)
