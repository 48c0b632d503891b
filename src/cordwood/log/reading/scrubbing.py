"""Checks closed segments piece by piece for damage.

Without a check, damage in a closed segment that nobody reads would stay unseen for months. `SegmentCheck` reads past
the page cache, as cold reads do. If it meets damage, `confirm` reads the whole segment once more and notes its holes,
which are then refused to readers. Both run in any thread, beside appends, retention and compaction: the check of a
segment that is removed meanwhile fails with StorageFailure or FileNotFoundError, and the caller checks whether the log
still has the segment.
"""

from typing import NamedTuple

from cordwood.log.parts.holes import Hole
from cordwood.log.parts.segment import Segment
from cordwood.log.parts.segments import LogSegments
from cordwood.segments.filesystem import File
from cordwood.segments.scan import SegmentScan

CHUNK_BYTES = 256 * 1024


class Step(NamedTuple):
    """The result of one call of `SegmentCheck.step`."""

    bytes: int
    batches: int
    done: bool
    """True if the segment needs no further step."""
    sound: bool
    """False: the segment has damage, and `confirm` finds the places."""


class SegmentCheck:
    """The check of one segment, batch by batch."""

    def __init__(self, segments: LogSegments, segment: Segment, end_offset: int) -> None:
        """`end_offset` is the base offset of the next segment."""
        self._end_offset = end_offset
        self._may_have_gaps = segments.may_have_gaps
        self._scan = SegmentScan(
            ColdFile(segment.file), segment.base_offset, end_position=segment.size, chunk_size=CHUNK_BYTES
        )
        self._batches = iter(self._scan)

    def step(self, max_bytes: int, max_batches: int) -> Step:
        """Reads about max_bytes, but at least one batch."""
        started, batches = self._scan.position, 0
        for _ in self._batches:
            batches += 1
            if batches >= max_batches or self._scan.position - started >= max_bytes:
                return Step(self._scan.position - started, batches, done=False, sound=True)
        sound = self._scan.invalid is None and (self._may_have_gaps or self._scan.next_offset == self._end_offset)
        return Step(self._scan.position - started, batches, done=True, sound=sound)


class ColdFile:
    """A file whose reads leave the page cache as they found it."""

    def __init__(self, file: File) -> None:
        self._file = file
        self.path = file.path

    @property
    def size(self) -> int:
        return self._file.size

    def read(self, position: int, length: int) -> bytes:
        into = memoryview(bytearray(length))
        filled = 0
        while filled < length:
            got = self._file.read_cold(position + filled, into[filled:])
            if got == 0:
                break
            filled += got
        return bytes(into[:filled])


def confirm(segments: LogSegments, segment: Segment, end_offset: int) -> None:
    """Finds all damage of a closed segment: sets its holes, and rebuilds its indexes without them."""
    reached = segment.examine(end_offset, segments.settings.index_interval_bytes)
    if reached < end_offset and not segments.may_have_gaps:
        segment.holes += (Hole(segment.size, segment.size, reached, end_offset, "the file ends too early"),)
