"""Recovers a log after an unclean stop: kill -9, power loss, a torn tail, a half-written index, a bad disk.

Below the recovery point nothing is cut: damaged offsets are reported and skipped, and the rest is served. Batches below
the witnessed end, if there is one, are not cut either: they were fsynced, though not the files beside the log. Above
both the log ends at the first invalid batch, and the cut is reported (`cutting.py`). Segments before the recovery point
are checked only at their end; the segment that holds it is scanned from the last index entry below it, because index
entries are durable before the recovery point passes them.
"""

import struct
from typing import NamedTuple

from cordwood.log.opening.cutting import cut_behind_hole, cut_file, cut_segments
from cordwood.log.parts.holes import Hole, HoleyScan, read_whole_batch
from cordwood.log.parts.offsets import LogOffsets
from cordwood.log.parts.report import Damage, LogReports, RecoveryReport
from cordwood.log.parts.saved_state import SavedState
from cordwood.log.parts.segment import Segment
from cordwood.log.parts.segments import LogSegments
from cordwood.model.identifiers import NO_TIMESTAMP_MS
from cordwood.records.batch import HEADER_SIZE, read_header
from cordwood.segments.damaged import DamagedIndex
from cordwood.segments.indexes import SegmentIndexes
from cordwood.segments.names import Suffix
from cordwood.segments.offset_index import ENTRY_SIZE as OFFSET_ENTRY_SIZE
from cordwood.segments.offset_index import OffsetIndex
from cordwood.segments.scan import SegmentScan
from cordwood.segments.time_index import ENTRY_SIZE as TIME_ENTRY_SIZE
from cordwood.segments.time_index import TimeIndex

_OFFSET_ENTRY = struct.Struct(">ii")
_TIME_ENTRY = struct.Struct(">qi")

_TRIED_ENTRIES = 3
"""After this many index entries that do not lead to a batch, the whole index is discarded."""


class _End(NamedTuple):
    """The end of a segment."""

    offset: int
    can_grow: bool
    """True if the next segment, or an append, can follow."""
    cut: bool
    """True if bytes were cut there."""


class Recovery:
    """The recovery of one log: finds its end, cuts the bytes behind it, and reports damage."""

    def __init__(self, segments: LogSegments, offsets: LogOffsets, saved: SavedState, reports: LogReports) -> None:
        self._segments = segments
        self._offsets = offsets
        self._saved = saved
        self._reports = reports
        self._report = RecoveryReport(False, offsets.recovery_point)

    def run(self) -> None:
        segments, offsets, report = self._segments, self._offsets, self._report
        directory = segments.directory
        kept, end_offset, can_grow = self._recover_segments()
        if end_offset < offsets.start:
            # The batches before the log's start may be gone, but their offsets must never be given out again.
            end_offset, can_grow = offsets.start, False
        # A closed segment whose successor did not survive is active again.
        active = kept[-1] if kept and can_grow else None
        segments.keep_only(kept, active)
        if active is not None:
            opened_ms = segments.opened.wall_ms
            active.roll_at_ms = segments.roll_time_ms(first_timestamp_ms(active, opened_ms))
        offsets.end = offsets.durable_end = end_offset
        if kept:
            directory.restore_topic_id()
        if kept and (end_offset > offsets.recovery_point or not kept[-1].size):
            # The files may have been in the page cache only: now their names are durable, too. An empty last segment is
            # left by a process that was killed before its first append to it; the next append goes into it.
            directory.sync_topic_id()
            directory.sync_names()
            directory.filesystem.sync_directory(directory.parent or ".")
        report.damage = [damage for damage in report.damage if damage.end_offset > offsets.start]
        # The offsets show that there were records up to here; there may have been later ones.
        offsets.end_in_doubt = not kept or any(damage.end_offset == end_offset for damage in report.damage)
        report.log_end_offset = end_offset
        self._reports.recovered(report)

    def _recover_segments(self) -> tuple[tuple[Segment, ...], int, bool]:
        """The segments that stay, the end of the log, and whether the last segment can take appends."""
        segments, offsets = self._segments.all, self._offsets
        if not segments:
            return (), self._without_files(), False
        end = _End(segments[0].base_offset, can_grow=False, cut=False)
        scanned = False
        for place, segment in enumerate(segments):
            next_base = segments[place + 1].base_offset if place + 1 < len(segments) else None
            if next_base is not None and next_base <= offsets.recovery_point:
                self._check_closed(segment, next_base)
                continue
            # A gap before the log's start is harmless: a crash took these batches, and the log went on at its start.
            if scanned and not self._follows(segment, end) and segment.base_offset > offsets.start:
                reason = f"offset {segment.base_offset} where {end.offset} must come"
                cut_segments(self._segments.directory, segments[place:], end.offset, reason, self._report)
                return segments[:place], end.offset, end.can_grow
            scanned = True
            end = self._recover_segment(segment, next_base)
        return segments, end.offset, end.can_grow

    def _without_files(self) -> int:
        """Reports that a log with offsets has no segments; returns its end."""
        offsets, directory = self._offsets, self._segments.directory
        end_offset = max(offsets.recovery_point, offsets.start, offsets.witnessed_end)
        if end_offset > offsets.start:
            self._report.damage.append(
                Damage(directory.partition, directory.path, 0, offsets.start, end_offset, "there is no log file")
            )
        # A log without a segment gets no checkpoint, and the next checkpoint of all logs empties the witness.
        offsets.recovery_point = end_offset
        return end_offset

    def _follows(self, segment: Segment, end: _End) -> bool:
        """True if the segment follows the end of the previous one."""
        if segment.base_offset == end.offset or not end.can_grow:
            return segment.base_offset == end.offset
        return self._may_be_compacted and not end.cut and segment.base_offset > end.offset

    @property
    def _may_be_compacted(self) -> bool:
        """True if scanned segments may have lost their ends to compaction.

        Compaction may empty a segment's end, but never above the recovery point: there a gap comes from a power cut. If
        the recovery point was lost, the two cannot be told apart, and nothing may be cut.
        """
        return self._segments.may_have_gaps and self._offsets.recovery_point_lost

    def _recover_segment(self, segment: Segment, next_base: int | None) -> _End:
        """Scans the segment from the last trusted index entry on, and cuts an invalid end."""
        file, report, directory = segment.file, self._report, self._segments.directory
        recovery_point = self._offsets.recovery_point
        durable_end = max(recovery_point, self._offsets.witnessed_end)
        if next_base is not None:
            durable_end = recovery_point if self._may_be_compacted else min(durable_end, next_base)
        scan, indexes = self._scan_tail(segment, durable_end)
        if scan.next_offset > recovery_point:
            # The page cache keeps bytes that a disk has lost, and marks them clean, so that a sync succeeds: read again
            # from disk.
            file.sync()
            file.forget_cached()
            scan, indexes = self._scan_tail(segment, durable_end)
        report.scanned_bytes += scan.scanned_bytes
        end_offset, holes, can_grow = scan.next_offset, scan.holes, True
        if scan.invalid is not None:
            cut_file(directory, segment, scan.invalid.position, end_offset, scan.invalid.reason, report)
        elif end_offset < durable_end:
            holes.append(Hole(file.size, file.size, end_offset, durable_end, "the file ends too early"))
            end_offset, can_grow = durable_end, False
        elif holes and holes[-1].end_position == file.size:
            can_grow = False
            cut_behind_hole(directory, segment, holes, end_offset, report)
        if next_base is not None or not can_grow:
            indexes.close()
            self._segments.closing.append(segment)
        segment.size, segment.indexes, segment.holes = file.size, indexes, tuple(holes)
        self._saved.checkpoint_due |= not _index_files_match(segment, indexes)
        report.damage.extend(self._reports.damage_of(segment))
        if scan.invalid is not None:
            file.sync()
        return _End(end_offset, can_grow, cut=scan.invalid is not None)

    def _scan_tail(self, segment: Segment, durable_end: int) -> tuple[HoleyScan, SegmentIndexes]:
        """A scan from the last trusted index entry to the end, and the indexes that it gives. Holes below `durable_end`
        are stepped over."""
        interval_bytes = self._segments.settings.index_interval_bytes
        indexes = _trusted_indexes(segment, self._offsets.recovery_point, interval_bytes)
        position = indexes.rewind()
        segment.saved_offsets, segment.saved_times = len(indexes.offsets), len(indexes.times)
        scan = HoleyScan(
            segment.file,
            segment.base_offset,
            trusted_below=durable_end,
            position=position,
            next_offset=segment.base_offset + indexes.offsets.last_offset + 1,
            contiguous=not self._segments.may_have_gaps,
        )
        for place, header in scan:
            indexes.note(place, header.size, header.last_offset, header.max_timestamp)
        return scan, indexes

    def _check_closed(self, segment: Segment, next_base: int) -> None:
        """Checks the end of a segment before the recovery point; if the end is bad, examines the whole segment."""
        may_have_gaps = self._segments.may_have_gaps
        if _closed_is_sound(segment, next_base, compacted=may_have_gaps):
            return
        end_offset = segment.examine(next_base, self._segments.settings.index_interval_bytes)
        self._report.rebuilt.append(segment.path(Suffix.INDEX))
        self._report.scanned_bytes += segment.size
        if end_offset < next_base and not may_have_gaps:
            segment.holes += (Hole(segment.size, segment.size, end_offset, next_base, "the file ends too early"),)
        self._segments.loaded_indexes.used(segment)
        self._report.damage.extend(self._reports.damage_of(segment))


def first_timestamp_ms(segment: Segment, wall_ms: int) -> int:
    """The approximate beginning of the segment: the timestamp of its first batch, but not in the future."""
    data = segment.file.read(0, HEADER_SIZE)
    if len(data) < HEADER_SIZE:
        return wall_ms
    timestamp_ms = read_header(data).max_timestamp
    return timestamp_ms if 0 <= timestamp_ms < wall_ms else wall_ms


def _trusted_indexes(segment: Segment, recovery_point: int, interval_bytes: int) -> SegmentIndexes:
    """The index entries below the recovery point, the last of which leads to a valid batch."""
    indexes = SegmentIndexes(segment.base_offset, interval_bytes)
    limit = recovery_point - segment.base_offset
    try:
        offset_data = segment.filesystem.read_bytes(segment.path(Suffix.INDEX))
        time_data = segment.filesystem.read_bytes(segment.path(Suffix.TIME_INDEX))
    except FileNotFoundError:
        return indexes
    # Behind the last synced entry a crash may leave any bytes: the index ends where the entries stop increasing.
    last_offset = last_position = -1
    count = 0
    for relative_offset, position in _OFFSET_ENTRY.iter_unpack(_whole(offset_data, OFFSET_ENTRY_SIZE)):
        if not last_offset < relative_offset < limit or not last_position < position < segment.size:
            break
        last_offset, last_position, count = relative_offset, position, count + 1
    indexes.offsets = OffsetIndex.from_bytes(offset_data[: count * OFFSET_ENTRY_SIZE])
    last_timestamp, last_offset, count = -1, 0, 0
    for timestamp_ms, relative_offset in _TIME_ENTRY.iter_unpack(_whole(time_data, TIME_ENTRY_SIZE)):
        if timestamp_ms <= last_timestamp or not last_offset <= relative_offset < limit:
            break
        last_timestamp, last_offset, count = timestamp_ms, relative_offset, count + 1
    indexes.times = TimeIndex.from_bytes(time_data[: count * TIME_ENTRY_SIZE])
    try:
        segment.check_times(indexes.times)
    except DamagedIndex:
        return SegmentIndexes(segment.base_offset, interval_bytes)
    for _ in range(_TRIED_ENTRIES):
        if not len(indexes.offsets):
            break
        header = read_whole_batch(segment.file, indexes.offsets.last_position)
        if header is not None and header.last_offset - segment.base_offset == indexes.offsets.last_offset:
            return indexes
        indexes.offsets.truncate(indexes.offsets.last_offset)
    return SegmentIndexes(segment.base_offset, interval_bytes)


def _index_files_match(segment: Segment, indexes: SegmentIndexes) -> bool:
    try:
        offsets = segment.filesystem.open(segment.path(Suffix.INDEX)).size
        times = segment.filesystem.open(segment.path(Suffix.TIME_INDEX)).size
    except FileNotFoundError:
        return False
    return (offsets, times) == (indexes.offsets.size_bytes, indexes.times.size_bytes)


def _whole(data: bytes, entry_size: int) -> bytes:
    return data[: len(data) - len(data) % entry_size]


def _closed_is_sound(segment: Segment, next_base: int, *, compacted: bool) -> bool:
    try:
        index = segment.filesystem.open(segment.path(Suffix.INDEX))
        times = segment.filesystem.open(segment.path(Suffix.TIME_INDEX))
    except FileNotFoundError:
        return False
    if index.size % OFFSET_ENTRY_SIZE or times.size % TIME_ENTRY_SIZE:
        return False
    position, indexed_offset = 0, None
    if index.size:
        entry = index.read(index.size - OFFSET_ENTRY_SIZE, OFFSET_ENTRY_SIZE)
        relative_offset, position = _OFFSET_ENTRY.unpack(entry)
        indexed_offset = segment.base_offset + relative_offset
    latest_ms = NO_TIMESTAMP_MS
    if times.size:
        latest_ms, _ = _TIME_ENTRY.unpack(times.read(times.size - TIME_ENTRY_SIZE, TIME_ENTRY_SIZE))
    index.close()
    times.close()
    if not 0 <= position < segment.size:
        return False
    scan = SegmentScan(segment.file, segment.base_offset, position=position)
    for place, header in scan:
        if place == position and indexed_offset is not None and header.last_offset != indexed_offset:
            return False
        # A closed segment's time index ends with its largest timestamp.
        if header.max_timestamp > latest_ms:
            return False
    if scan.invalid is not None:
        return False
    return scan.next_offset == next_base or (compacted and scan.next_offset <= next_base)
