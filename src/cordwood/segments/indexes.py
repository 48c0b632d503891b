"""The offset and time index of one segment, kept in step with its log file.

Only this module knows when an entry is due: an append, a recovery and a rebuild call `note` for every batch in order,
so that the same log gives the same indexes.
"""

from cordwood.model.identifiers import NO_TIMESTAMP_MS
from cordwood.segments.filesystem import File
from cordwood.segments.offset_index import OffsetIndex
from cordwood.segments.scan import SegmentScan
from cordwood.segments.time_index import TimeIndex


class SegmentIndexes:
    """A segment's metadata beside its bytes: both sparse indexes and its largest timestamp."""

    __slots__ = (
        "_bytes_since_entry",
        "base_offset",
        "interval_bytes",
        "max_timestamp_ms",
        "max_timestamp_offset",
        "offsets",
        "times",
    )

    def __init__(self, base_offset: int, interval_bytes: int) -> None:
        self.base_offset = base_offset
        self.interval_bytes = interval_bytes
        self.offsets = OffsetIndex()
        self.times = TimeIndex()
        self.max_timestamp_ms = NO_TIMESTAMP_MS
        self.max_timestamp_offset = base_offset
        """The last offset of the first batch that has the largest timestamp."""
        self._bytes_since_entry = 0

    def note(self, position: int, size: int, last_offset: int, max_timestamp_ms: int) -> bool:
        """A batch of this size is in the log file at this position; True if the indexes got an entry for it.

        Kafka's rule: an entry is due once more than the interval's bytes came since the last one. The entry has the
        batch's last offset and the largest timestamp up to and including it.
        """
        if max_timestamp_ms > self.max_timestamp_ms:
            self.max_timestamp_ms = max_timestamp_ms
            self.max_timestamp_offset = last_offset
        since = self._bytes_since_entry
        if since <= self.interval_bytes:
            self._bytes_since_entry = since + size
            return False
        self._bytes_since_entry = size
        self.offsets.append(last_offset - self.base_offset, position)
        self._note_time()
        return True

    def close(self) -> None:
        """Ends the segment: its largest timestamp goes into the time index, and no further batch follows."""
        self._note_time()

    def _note_time(self) -> None:
        self.times.append(self.max_timestamp_ms, self.max_timestamp_offset - self.base_offset)

    def position_of(self, offset: int) -> int:
        """A log position at or before the batch that holds this offset."""
        return self.offsets.lookup(offset - self.base_offset)

    def offset_before(self, timestamp_ms: int) -> int:
        """An offset at or before the first record that is as late as this timestamp, if the segment has one."""
        return self.base_offset + self.times.lookup(timestamp_ms - 1).relative_offset

    def truncate(self, offset: int, file: File) -> None:
        """Drops entries at and after this offset, because the log file was cut there."""
        self.offsets.truncate(offset - self.base_offset)
        self.times.truncate(offset - self.base_offset)
        self.resume(file)

    def resume(self, file: File) -> SegmentScan:
        """Catches up with a log file whose indexes were loaded or cut; the returned scan knows where the log ends.

        Only the headers behind the last offset entry are looked at: that entry was written together with the largest
        timestamp up to it. CRCs are not verified: that is recovery's part.
        """
        last = self.times.last
        self.max_timestamp_ms = last.timestamp_ms
        self.max_timestamp_offset = self.base_offset + last.relative_offset
        start = max(self.offsets.last_position, 0)
        scan = SegmentScan(file, self.base_offset, position=start, verify_crc=False)
        for _, header in scan:
            if header.max_timestamp > self.max_timestamp_ms:
                self.max_timestamp_ms = header.max_timestamp
                self.max_timestamp_offset = header.base_offset + header.last_offset_delta
        self._bytes_since_entry = scan.position - start
        return scan

    def rewind(self) -> int:
        """Takes the last offset entry back; noting the batches from the returned log position on makes it again.

        Recovery verifies the batches behind a trusted entry and must give the indexes the entries that are due there.
        """
        position = max(self.offsets.last_position, 0)
        relative_offset = max(self.offsets.last_offset, 0)
        self._bytes_since_entry = self.interval_bytes + 1 if len(self.offsets) else 0
        self.offsets.truncate(relative_offset)
        self.times.truncate(relative_offset)
        last = self.times.last
        self.max_timestamp_ms = last.timestamp_ms
        self.max_timestamp_offset = self.base_offset + last.relative_offset
        return position
