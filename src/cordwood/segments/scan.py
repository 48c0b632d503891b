"""Reads a segment's log file from a place on: every batch, checked, up to the end or to the first invalid one.

Recovery cuts or reports at the invalid batch, `inspect --verify` names it, and rebuild.py makes every index again from
the valid ones. Memory is bounded by one chunk, or one batch where that is larger.
"""

from collections.abc import Iterator
from typing import NamedTuple

from cordwood.records.batch import (
    CRC_START,
    HEADER_SIZE,
    LOG_OVERHEAD,
    MAGIC,
    BatchHeader,
    read_header,
)
from cordwood.records.checksum import crc32c
from cordwood.segments.filesystem import Readable
from cordwood.segments.offset_index import MAX_RELATIVE_OFFSET

CHUNK_SIZE = 1024 * 1024
SMALLEST_LENGTH = HEADER_SIZE - LOG_OVERHEAD


class InvalidPlace(NamedTuple):
    """The place where a log file becomes invalid."""

    position: int
    offset: int
    """The offset that the batch at this place should have had, or a later one."""
    reason: str


class _Invalid(Exception):
    """The reason why the batch at hand is invalid; never leaves this module."""


class SegmentScan:
    """Iterates over (position, header) of a log file's valid batches; afterwards `invalid` says why the scan stopped
    early.

    `position` and `next_offset` point behind the last valid batch: the size and end of the sound part.
    """

    def __init__(
        self,
        file: Readable,
        base_offset: int,
        *,
        position: int = 0,
        next_offset: int | None = None,
        end_position: int | None = None,
        verify_crc: bool = True,
        contiguous: bool = False,
        chunk_size: int = CHUNK_SIZE,
    ) -> None:
        """Starts at the batch at `position`, whose offsets must not be below next_offset (default: base_offset).

        `contiguous`: no offset may be missing. The CRC does not cover a batch's base offset, so only this check finds a
        flipped bit in it; but a log that was compacted, here or on its leader, has gaps.
        """
        self.file = file
        self.base_offset = base_offset
        self.position = position
        self.next_offset = base_offset if next_offset is None else next_offset
        self.invalid: InvalidPlace | None = None
        self.batch = memoryview(b"")
        """The bytes of the batch that was yielded last; valid until the next one is asked for."""
        self._end = file.size if end_position is None else min(end_position, file.size)
        self._verify_crc = verify_crc
        self._contiguous = contiguous
        self._chunk_size = max(chunk_size, HEADER_SIZE)
        self._chunk = memoryview(b"")
        self._chunk_position = position

    def __iter__(self) -> Iterator[tuple[int, BatchHeader]]:
        while self.invalid is None and self.position < self._end:
            position = self.position
            try:
                header = self._read_batch(position)
            except _Invalid as reason:
                self.invalid = InvalidPlace(position, self.next_offset, str(reason))
                return
            self.position = position + header.batch_length + LOG_OVERHEAD
            self.next_offset = header.base_offset + header.last_offset_delta + 1
            yield position, header

    def _read_batch(self, position: int) -> BatchHeader:
        left = self._end - position
        if left < HEADER_SIZE:
            raise _Invalid(f"{left} bytes are too few for a batch")
        start = self._load(position, HEADER_SIZE)
        header = read_header(self._chunk, start)
        reason = self._why_header_is_wrong(header, left)
        if reason is not None:
            raise _Invalid(reason)
        size = header.batch_length + LOG_OVERHEAD
        start = self._load(position, size)
        self.batch = self._chunk[start : start + size]
        if self._verify_crc and crc32c(self.batch[CRC_START:]) != header.crc:
            raise _Invalid("the CRC is wrong")
        return header

    def _why_header_is_wrong(self, header: BatchHeader, left: int) -> str | None:
        length = header.batch_length
        if length < SMALLEST_LENGTH:
            return f"a batch cannot have a length of {length}"
        if length + LOG_OVERHEAD > left:
            return f"a batch of {length + LOG_OVERHEAD} bytes is cut short to {left}"
        if header.magic != MAGIC:
            return f"magic {header.magic} is not supported"
        if header.base_offset < self.next_offset:
            return f"offset {header.base_offset} where at least {self.next_offset} must come"
        if self._contiguous and header.base_offset != self.next_offset:
            return f"offset {header.base_offset} where {self.next_offset} must come"
        if header.last_offset_delta < 0 or header.last_offset - self.base_offset > MAX_RELATIVE_OFFSET:
            return f"offset {header.last_offset} cannot be in this segment"
        if not 0 <= header.record_count <= header.last_offset_delta + 1:
            return f"{header.record_count} records between offsets {header.base_offset} and {header.last_offset}"
        return None

    def _load(self, position: int, length: int) -> int:
        """Loads these bytes into the chunk, and returns their place in it."""
        start = position - self._chunk_position
        if start + length > len(self._chunk):
            wanted = min(max(length, self._chunk_size), self._end - position)
            self._chunk = memoryview(self.file.read(position, wanted))
            self._chunk_position = position
            start = 0
            if len(self._chunk) < length:
                # The file is shorter than it said: it was cut while we read.
                raise _Invalid(f"only {len(self._chunk)} of {length} bytes could be read")
        return start
