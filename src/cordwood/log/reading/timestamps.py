"""Finds records by their timestamps.

Timestamps need not increase along a log. The time index gives an offset before which no later timestamp is. From there
on batches are read in order, and only the batch with the timestamp is opened: in this process if it is small, else in
another.

A search has a budget of records and bytes. A batch beyond the budget is not opened: the answer is its first offset with
the latest time of its header. So a reader by time may read records that are too early, but misses none. The same holds
for a batch that cannot be opened.
"""

from typing import NamedTuple

from cordwood.log.parts.holes import HoleyScan
from cordwood.log.parts.offsets import LogOffsets
from cordwood.log.parts.segment import Segment
from cordwood.log.parts.segments import LogSegments
from cordwood.log.reading.record_work import RecordWork
from cordwood.model.errors import DamagedLog
from cordwood.model.identifiers import NO_TIMESTAMP_MS
from cordwood.records.batch import BatchHeader, crc_is_right
from cordwood.records.corruption import CorruptRecords, TooMuchToOpen
from cordwood.records.records import FoundInBatch, first_as_late

MAX_RECORDS_LOOKED_AT = 1_000_000
MAX_BYTES_OPENED = 256 * 1024 * 1024
"""The budget of one search, over all batches that it opens: headers may name times that no record has."""

FEW_RECORDS = 1000
FEW_BYTES = 1024 * 1024
"""A batch within these bounds is opened in this process: a call to another process costs as much."""


class FoundTimestamp(NamedTuple):
    offset: int
    timestamp_ms: int
    leader_epoch: int


class TimestampSearch:
    """A search for the first record with this or a later timestamp. `run` may block, and may run beside appends."""

    __slots__ = (
        "_apart",
        "_bytes_left",
        "_end_offset",
        "_log_end",
        "_records_left",
        "_segments",
        "_segments_then",
        "_start_offset",
        "_timestamp_ms",
    )

    def __init__(
        self, segments: LogSegments, offsets: LogOffsets, timestamp_ms: int, end_offset: int, apart: RecordWork
    ) -> None:
        self._segments = segments
        self._apart = apart
        self._records_left = MAX_RECORDS_LOOKED_AT
        self._bytes_left = MAX_BYTES_OPENED
        self._segments_then = segments.all
        self._log_end = offsets.end
        self._start_offset = offsets.start
        self._timestamp_ms = timestamp_ms
        self._end_offset = min(end_offset, offsets.end)

    def run(self) -> FoundTimestamp | None:
        segments = self._segments_then
        for place, segment in enumerate(segments):
            if segment.base_offset >= self._end_offset:
                return None
            end = segments[place + 1].base_offset if place + 1 < len(segments) else self._log_end
            if end <= self._start_offset or not segment.size:
                continue
            if segment.max_timestamp_ms(end, self._segments.settings.index_interval_bytes) < self._timestamp_ms:
                continue
            found = self._search_segment(segment, end)
            if found is not None:
                return found
        return None

    def _search_segment(self, segment: Segment, end: int) -> FoundTimestamp | None:
        indexes = self._segments.indexes_of(segment, end)
        start_offset = max(indexes.offset_before(self._timestamp_ms), self._start_offset)
        scan = HoleyScan(
            segment.file,
            segment.base_offset,
            trusted_below=end,
            position=indexes.position_of(start_offset),
            verify_crc=False,
        )
        for _, header in scan:
            if header.base_offset >= self._end_offset:
                return None
            if header.max_timestamp >= self._timestamp_ms and header.last_offset >= self._start_offset:
                found = self._search_batch(scan.batch, header, segment)
                if found is not None:
                    return found
        return None

    def _search_batch(self, batch: memoryview, header: BatchHeader, segment: Segment) -> FoundTimestamp | None:
        leader_epoch = header.partition_leader_epoch
        self._records_left -= header.record_count
        if self._records_left < 0 or self._bytes_left <= 0:
            return self._by_header(header)
        try:
            offset, timestamp_ms, opened_bytes = self._open(batch, header)
        except CorruptRecords as error:
            if crc_is_right(batch, 0, len(batch)):
                # The producer sent a batch that cannot be opened. The batch must not hide later records from a reader
                # by time.
                return self._by_header(header)
            raise DamagedLog(f"{self._segments.directory.partition}: {segment.file.path}: {error}") from error
        self._bytes_left -= opened_bytes
        if offset < 0 or offset >= self._end_offset:
            return None
        return FoundTimestamp(offset, timestamp_ms, leader_epoch)

    def _open(self, batch: memoryview, header: BatchHeader) -> FoundInBatch:
        if header.record_count <= FEW_RECORDS and header.size <= FEW_BYTES:
            try:
                return first_as_late(batch, self._timestamp_ms, self._start_offset, FEW_BYTES)
            except TooMuchToOpen:
                pass
        return self._apart.call(first_as_late, bytes(batch), self._timestamp_ms, self._start_offset)

    def _by_header(self, header: BatchHeader) -> FoundTimestamp:
        offset = max(header.base_offset, self._start_offset)
        return FoundTimestamp(offset, header.max_timestamp, header.partition_leader_epoch)


def find_latest(
    segments: LogSegments, offsets: LogOffsets, end_offset: int, apart: RecordWork
) -> FoundTimestamp | None:
    """The first record with the largest timestamp below end_offset."""
    latest = NO_TIMESTAMP_MS
    for place, segment in enumerate(segments):
        end = segments.end_of(place)
        if segment.base_offset >= end_offset or end <= offsets.start or not segment.size:
            continue
        if end <= end_offset:
            latest = max(latest, segment.max_timestamp_ms(end, segments.settings.index_interval_bytes))
        else:
            latest = max(latest, _latest_before(segments, segment, end, end_offset))
    if latest == NO_TIMESTAMP_MS:
        return None
    return TimestampSearch(segments, offsets, latest, end_offset, apart).run()


def _latest_before(segments: LogSegments, segment: Segment, end: int, end_offset: int) -> int:
    """The largest timestamp of the segment's batches that end before this offset."""
    indexes = segment.load_indexes(end, segments.settings.index_interval_bytes)
    latest = NO_TIMESTAMP_MS
    for entry in indexes.times.entries():
        if segment.base_offset + entry.relative_offset >= end_offset:
            break
        latest = entry.timestamp_ms
    position = indexes.position_of(end_offset - 1)
    scan = HoleyScan(segment.file, segment.base_offset, trusted_below=end, position=position, verify_crc=False)
    for _, header in scan:
        if header.last_offset >= end_offset:
            break
        latest = max(latest, header.max_timestamp)
    return latest
