"""Finding records by their timestamps.

Timestamps need not increase along a log. The time index says from which offset on a later one can be; from there the
batches are looked at in order, and only the one that has it is opened.
"""

from typing import TYPE_CHECKING, NamedTuple

from cordwood.log.holes import HoleyScan
from cordwood.log.segment import Segment
from cordwood.model.errors import DamagedLog
from cordwood.model.identifiers import NO_TIMESTAMP_MS
from cordwood.records.batch import BatchHeader, crc_is_right
from cordwood.records.corruption import CorruptRecords
from cordwood.records.records import packed_records_in

if TYPE_CHECKING:
    from cordwood.log.log import Log

_LATEST_MS = 2**63 - 1


class FoundTimestamp(NamedTuple):
    offset: int
    timestamp_ms: int
    leader_epoch: int


class TimestampSearch:
    """A search for the first record as late as a timestamp. `run` may block, and may run beside appends."""

    __slots__ = ("_end_offset", "_interval_bytes", "_log", "_log_end", "_segments", "_start_offset", "_timestamp_ms")

    def __init__(self, log: "Log", timestamp_ms: int, end_offset: int) -> None:
        self._log = log
        self._segments = log.segments
        self._log_end = log.log_end_offset
        self._start_offset = log.log_start_offset
        self._interval_bytes = log.settings.index_interval_bytes
        self._timestamp_ms = timestamp_ms
        self._end_offset = min(end_offset, log.log_end_offset)

    def run(self) -> FoundTimestamp | None:
        segments = self._segments
        for place, segment in enumerate(segments):
            if segment.base_offset >= self._end_offset:
                return None
            end = segments[place + 1].base_offset if place + 1 < len(segments) else self._log_end
            if end <= self._start_offset or not segment.size:
                continue
            if segment.max_timestamp_ms(end, self._interval_bytes) < self._timestamp_ms:
                continue
            found = self._search_segment(segment, end)
            if found is not None:
                return found
        return None

    def _search_segment(self, segment: Segment, end: int) -> FoundTimestamp | None:
        indexes = segment.indexes
        if indexes is None:
            indexes = segment.load_indexes(end, self._interval_bytes)
            self._log.loaded_indexes.used(segment)
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
        try:
            for record in packed_records_in(batch):
                if record.timestamp_ms >= self._timestamp_ms and record.offset >= self._start_offset:
                    if record.offset >= self._end_offset:
                        return None
                    if record.timestamp_ms > _LATEST_MS:
                        raise CorruptRecords(f"a record has the time {record.timestamp_ms}")
                    return FoundTimestamp(record.offset, record.timestamp_ms, leader_epoch)
        except CorruptRecords as error:
            if crc_is_right(batch, 0, len(batch)):
                # Its producer sent it so. Nobody can open it; it must not hide what follows from who asks by time.
                return FoundTimestamp(max(header.base_offset, self._start_offset), header.max_timestamp, leader_epoch)
            raise DamagedLog(f"{self._log.partition}: {segment.file.path}: {error}") from error
        return None


def find_latest(log: "Log", end_offset: int) -> FoundTimestamp | None:
    """The first of the records below end_offset that have the largest timestamp."""
    latest = NO_TIMESTAMP_MS
    for place, segment in enumerate(log.segments):
        end = log.end_of_segment(place)
        if segment.base_offset >= end_offset or end <= log.log_start_offset or not segment.size:
            continue
        if end <= end_offset:
            latest = max(latest, segment.max_timestamp_ms(end, log.settings.index_interval_bytes))
        else:
            latest = max(latest, _latest_before(log, segment, end, end_offset))
    if latest == NO_TIMESTAMP_MS:
        return None
    return TimestampSearch(log, latest, end_offset).run()


def _latest_before(log: "Log", segment: Segment, end: int, end_offset: int) -> int:
    """The largest timestamp of the segment's batches that end before this offset."""
    indexes = segment.load_indexes(end, log.settings.index_interval_bytes)
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
