"""Finds an offset in a segment's log file: from an index entry, header by header, to the batch with the offset.

In the loop headers are read only from memory; `NotCached` means that a thread must do it, with the same code and
`may_block`. The code reads only attributes of a segment that are replaced whole.
"""

import struct
from typing import NamedTuple

from cordwood.log.parts.holes import Hole
from cordwood.log.parts.segment import Segment
from cordwood.model.errors import DamagedLog
from cordwood.records.batch import LOG_OVERHEAD, MAGIC
from cordwood.segments.filesystem import File
from cordwood.segments.indexes import SegmentIndexes
from cordwood.segments.scan import SMALLEST_LENGTH

_CHUNK_SIZE = 8 * 1024
_HEADER_START = struct.Struct(">qi4xb4x2xi")
"""Base offset, length, magic and last offset delta of a batch."""


class LogSlice(NamedTuple):
    """Whole batches: a range of bytes of one segment's file."""

    file: File
    position: int
    length: int
    base_offset: int
    """The base offset of the first batch, which may lie before the requested offset."""


class NotCached(Exception):
    """The bytes are not in memory, and the caller must not wait for the disk."""


class NotABatch(Exception):
    """The bytes at a position where a batch must begin are not a batch."""

    def __init__(self, position: int) -> None:
        super().__init__(f"no batch begins at {position}")
        self.position = position


class BatchPlace(NamedTuple):
    position: int
    base_offset: int
    size: int


class HeaderReader:
    """Reads headers of one log file, in chunks because small batches lie close to each other."""

    __slots__ = ("_chunk", "_chunk_start", "_end", "_file", "_may_block")

    def __init__(self, file: File, end: int, *, may_block: bool) -> None:
        self._file = file
        self._end = end
        self._may_block = may_block
        self._chunk: bytes | memoryview = b""
        self._chunk_start = 0

    def at(self, position: int) -> tuple[int, int, int]:
        """Base offset, last offset and size of the batch at this position."""
        start = position - self._chunk_start
        if start < 0 or start + _HEADER_START.size > len(self._chunk):
            self._load(position)
            start = 0
        base_offset, length, magic, last_offset_delta = _HEADER_START.unpack_from(self._chunk, start)
        size = length + LOG_OVERHEAD
        if length < SMALLEST_LENGTH or magic != MAGIC or last_offset_delta < 0 or position + size > self._end:
            raise NotABatch(position)
        return base_offset, base_offset + last_offset_delta, size

    def _load(self, position: int) -> None:
        wanted = min(_CHUNK_SIZE, self._end - position)
        if wanted < _HEADER_START.size:
            raise NotABatch(position)
        if self._may_block:
            chunk: bytes | memoryview = self._file.read(position, wanted)
        else:
            buffer = memoryview(bytearray(wanted))
            chunk = buffer[: self._file.read_now(position, buffer)]
            if len(chunk) < _HEADER_START.size:
                raise NotCached
        if len(chunk) < _HEADER_START.size:
            raise NotABatch(position)
        self._chunk, self._chunk_start = chunk, position


def find_batch_with(
    reader: HeaderReader, segment: Segment, indexes: SegmentIndexes, offset: int, end_offset: int, end: int
) -> BatchPlace | None:
    """The first batch that ends at or after the offset; None if no such batch begins before the position `end`.

    No CRC covers the offsets. They are checked against the index entry that the search starts from, the end of the
    segment and the following batch: NotABatch if these contradict each other.
    """
    relative_offset, position = indexes.offsets.entry_before(offset - segment.base_offset)
    indexed_offset = segment.base_offset + relative_offset
    expected = segment.base_offset if relative_offset < 0 else -1
    while True:
        hole = _hole_at(segment.holes, position)
        if hole is not None:
            if offset < hole.end_offset:
                raise DamagedLog(
                    f"offsets {hole.first_offset} to {hole.end_offset - 1} cannot be read: {hole.reason} "
                    f"at position {hole.position}"
                )
            position, expected = hole.end_position, hole.end_offset
        if position >= end:
            return None
        base_offset, last_offset, size = reader.at(position)
        if expected < 0:
            if last_offset != indexed_offset:
                raise NotABatch(position)
        elif base_offset != expected and not _can_follow(reader, expected, base_offset, last_offset, position + size):
            raise NotABatch(position)
        if last_offset >= end_offset:
            raise NotABatch(position)
        if last_offset >= offset:
            return BatchPlace(position, base_offset, size)
        position, expected = position + size, last_offset + 1


def _can_follow(reader: HeaderReader, expected: int, base_offset: int, last_offset: int, follower: int) -> bool:
    """True if a batch may have these offsets behind `expected`: compaction leaves gaps, damage contradicts."""
    if base_offset < expected:
        return False
    try:
        next_base_offset, _, _ = reader.at(follower)
    except NotABatch:
        return True
    return next_base_offset > last_offset


def _hole_at(holes: tuple[Hole, ...], position: int) -> Hole | None:
    for hole in holes:
        if hole.position == position:
            return hole
    return None


def find_slice(
    segment: Segment,
    indexes: SegmentIndexes,
    segment_end: int,
    offset: int,
    end_offset: int,
    max_bytes: int,
    *,
    minimum_one_batch: bool,
    may_block: bool,
) -> tuple[bool, LogSlice | None]:
    """Returns True if the segment has a batch that ends at or after the offset, and the slice from that batch on.

    The slice ends before the batch that holds end_offset, or with the segment, whose offsets end before segment_end.
    """
    size = segment.size
    reader = HeaderReader(segment.file, size, may_block=may_block)
    first = find_batch_with(reader, segment, indexes, offset, segment_end, size)
    if first is None:
        return False, None
    bounded = end_offset < segment_end
    if bounded and first.base_offset >= end_offset:
        return True, None
    end = min((hole.position for hole in segment.holes if hole.position > first.position), default=size)
    if bounded:
        limit = _find_limit(reader, indexes, first, end_offset, end)
        if limit is not None:
            end = limit
    end = _cut_to(reader, indexes, first, end, max_bytes, minimum_one_batch=minimum_one_batch)
    if end <= first.position:
        return True, None
    return True, LogSlice(segment.file, first.position, end - first.position, first.base_offset)


def _find_limit(
    reader: HeaderReader, indexes: SegmentIndexes, first: BatchPlace, end_offset: int, end: int
) -> int | None:
    """The position of the batch that holds end_offset; None if it is not before `end`."""
    position = max(indexes.position_of(end_offset), first.position)
    while position < end:
        _, last_offset, size = reader.at(position)
        if last_offset >= end_offset:
            return position
        position += size
    return None


def _cut_to(
    reader: HeaderReader,
    indexes: SegmentIndexes,
    first: BatchPlace,
    end: int,
    max_bytes: int,
    *,
    minimum_one_batch: bool,
) -> int:
    """The end of a slice of whole batches with at most max_bytes; with `minimum_one_batch` at least one batch."""
    if end - first.position <= max_bytes:
        return end
    limit = first.position + max_bytes
    position = first.position + first.size
    if position > limit:
        return position if minimum_one_batch and position <= end else first.position
    # The index has some starts of batches; only the bytes between the last such start and the limit are walked.
    position = max(position, indexes.offsets.position_up_to(limit))
    while True:
        _, _, size = reader.at(position)
        if position + size > limit:
            return position
        position += size
