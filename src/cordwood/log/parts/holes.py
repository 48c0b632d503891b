"""Walks over a log file with bad places: batches behind a bad place are found again and served.

A hole is a range of bytes and offsets that cannot be read. A hole ends at the next whole batch with a right CRC and a
possible offset.
"""

import re
from collections.abc import Iterator
from typing import NamedTuple

from cordwood.records.batch import (
    HEADER_SIZE,
    MAGIC,
    BatchHeader,
    crc_is_right,
    read_header,
)
from cordwood.segments.filesystem import File
from cordwood.segments.scan import SMALLEST_LENGTH, InvalidPlace, SegmentScan

_SEARCH_CHUNK = 1024 * 1024
_MAGIC_POSITION = 16


class Hole(NamedTuple):
    position: int
    end_position: int
    first_offset: int
    end_offset: int
    reason: str


class HoleyScan:
    """Iterates over (position, header) of the valid batches; bad places below `trusted_below` become holes.

    The scan stops at the first bad place at or beyond that offset, and `invalid` says where and why. With `contiguous`
    a jump in the offsets beyond `trusted_below` counts as bad. `position` and `next_offset` point behind the last valid
    batch.
    """

    def __init__(
        self,
        file: File,
        base_offset: int,
        *,
        trusted_below: int,
        position: int = 0,
        next_offset: int | None = None,
        contiguous: bool = False,
        verify_crc: bool = True,
    ) -> None:
        self.holes: list[Hole] = []
        self.invalid: InvalidPlace | None = None
        self.position = position
        self.next_offset = base_offset if next_offset is None else next_offset
        self.scanned_bytes = 0
        self._file = file
        self._base_offset = base_offset
        self._trusted_below = trusted_below
        self._contiguous = contiguous
        self._verify_crc = verify_crc
        self._start = position
        self._start_is_exact = position == 0
        """In the middle of a file only a lower bound of the first offset is known."""
        self._scan = self._scan_from(position)

    @property
    def batch(self) -> memoryview:
        """The bytes of the last yielded batch, valid until the next step."""
        return self._scan.batch

    def __iter__(self) -> Iterator[tuple[int, BatchHeader]]:
        while True:
            jump: InvalidPlace | None = None
            for position, header in self._scan:
                if header.base_offset != self.next_offset and not self._may_jump_to(position, header):
                    reason = f"offset {header.base_offset} where {self.next_offset} must come"
                    jump = InvalidPlace(position, self.next_offset, reason)
                    break
                self.position = position + header.size
                self.next_offset = header.next_offset
                self.scanned_bytes += header.size
                yield position, header
            bad = jump or self._scan.invalid
            if bad is None:
                return
            if self.next_offset >= self._trusted_below:
                self.invalid = InvalidPlace(bad.position, self.next_offset, bad.reason)
                return
            if not self._step_over(bad):
                return

    def _may_jump_to(self, position: int, header: BatchHeader) -> bool:
        """True if offsets may be missing before this batch. Otherwise its offset, which no CRC covers, is wrong."""
        if self.next_offset >= self._trusted_below:
            return not self._contiguous
        if position == self._start and not self._start_is_exact:
            return True
        follower = read_batch_header(self._file, position + header.size)
        if follower is None:
            return header.last_offset < self._trusted_below
        return follower.base_offset >= header.next_offset

    def _scan_from(self, position: int) -> SegmentScan:
        return SegmentScan(
            self._file,
            self._base_offset,
            position=position,
            next_offset=self.next_offset,
            verify_crc=self._verify_crc,
        )

    def _step_over(self, bad: InvalidPlace) -> bool:
        """Notes the hole at this place. True if a valid batch follows it."""
        found = find_batch(self._file, bad.position, self.next_offset, self._trusted_below)
        end_position, end_offset = self._file.size, self._trusted_below
        if found is not None:
            end_position, end_offset = found
        self.holes.append(Hole(bad.position, end_position, self.next_offset, end_offset, bad.reason))
        self.position, self.next_offset = end_position, end_offset
        if found is None:
            return False
        self._scan = self._scan_from(end_position)
        return True


def find_batch(file: File, bad_position: int, first_offset: int, last_offset: int) -> tuple[int, int] | None:
    """Position and base offset of the next whole batch behind a bad place, with a base offset within these bounds."""
    # If only the content of the bad batch is damaged, its length leads to the next batch. The length is tried first,
    # because a record may itself contain the bytes of a batch.
    claimed = read_batch_header(file, bad_position)
    if claimed is not None:
        follower = bad_position + claimed.size
        header = read_whole_batch(file, follower)
        if header is not None and first_offset <= header.base_offset <= last_offset:
            return follower, header.base_offset
    pattern = _batch_pattern(first_offset, last_offset)
    position, size = bad_position + 1, file.size
    while position + HEADER_SIZE <= size:
        chunk = file.read(position, _SEARCH_CHUNK + HEADER_SIZE)
        for match in pattern.finditer(chunk, 0, _SEARCH_CHUNK + _MAGIC_POSITION):
            header = read_whole_batch(file, position + match.start())
            if header is not None and first_offset <= header.base_offset <= last_offset:
                return position + match.start(), header.base_offset
        position += _SEARCH_CHUNK
    return None


def read_batch_header(file: File, position: int) -> BatchHeader | None:
    """The header at this position; None if no batch that fits into the file can begin there."""
    data = file.read(position, HEADER_SIZE)
    if len(data) < HEADER_SIZE:
        return None
    header = read_header(data)
    if header.magic != MAGIC or header.batch_length < SMALLEST_LENGTH or header.last_offset_delta < 0:
        return None
    return header if position + header.size <= file.size else None


def read_whole_batch(file: File, position: int) -> BatchHeader | None:
    """The header of the batch at this position; None without a right CRC."""
    header = read_batch_header(file, position)
    if header is None or not crc_is_right(file.read(position, header.size), 0, header.size):
        return None
    return header


def _batch_pattern(first_offset: int, last_offset: int) -> "re.Pattern[bytes]":
    """A pattern of the places where a batch could begin: the bytes that all offsets in bounds share, then the magic."""
    low, high = first_offset.to_bytes(8, "big"), last_offset.to_bytes(8, "big")
    shared = 0
    while shared < 8 and low[shared] == high[shared]:
        shared += 1
    rest = _MAGIC_POSITION - shared
    # The pattern is a lookahead, because such places may overlap.
    return re.compile(b"(?=%s.{%d}%s)" % (re.escape(low[:shared]), rest, re.escape(bytes([MAGIC]))), re.DOTALL)
