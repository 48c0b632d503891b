"""The sparse time index of a segment: the offset from which to look for a timestamp.

An entry is 12 bytes: int64 timestamp, int32 offset relative to the segment's base offset. The entry says: up to this
offset no record is later than this timestamp. Timestamps increase strictly, offsets increase.
"""

import sys
from array import array
from bisect import bisect_left, bisect_right
from operator import le, lt
from typing import NamedTuple

from cordwood.records.batch import Buffer
from cordwood.segments.damaged import DamagedIndex

ENTRY_SIZE = 12

assert array("q").itemsize == 8


class TimeEntry(NamedTuple):
    timestamp_ms: int
    relative_offset: int


BEFORE_FIRST = TimeEntry(-1, 0)
"""The result of a lookup without a usable entry: begin at the segment's start."""


class TimeIndex:
    """All offsets here are relative to the segment's base offset."""

    __slots__ = ("_offsets", "_timestamps")

    def __init__(self) -> None:
        self._timestamps = array("q")
        self._offsets = array("i")

    def __len__(self) -> int:
        return len(self._offsets)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, TimeIndex):
            return NotImplemented
        return self._timestamps == other._timestamps and self._offsets == other._offsets

    __hash__ = None  # type: ignore[assignment]

    @property
    def size_bytes(self) -> int:
        """The size of its file."""
        return len(self._offsets) * ENTRY_SIZE

    @property
    def last(self) -> TimeEntry:
        """The last entry: the largest timestamp indexed so far; BEFORE_FIRST if there is none."""
        return TimeEntry(self._timestamps[-1], self._offsets[-1]) if self._offsets else BEFORE_FIRST

    def entries(self) -> list[TimeEntry]:
        return [TimeEntry(*entry) for entry in zip(self._timestamps, self._offsets, strict=True)]

    def append(self, timestamp_ms: int, relative_offset: int) -> None:
        """Adds an entry, unless the index already has a timestamp as late: the entry would say nothing new."""
        if self._offsets:
            if timestamp_ms <= self._timestamps[-1]:
                return
            assert relative_offset >= self._offsets[-1], (relative_offset, self._offsets[-1])
        elif timestamp_ms < 0:
            return
        # The timestamp last: a lookup in another thread then never finds an entry that is not whole.
        self._offsets.append(relative_offset)
        self._timestamps.append(timestamp_ms)

    def lookup(self, timestamp_ms: int) -> TimeEntry:
        """The last entry at or before this timestamp: no record before its offset is later than the timestamp asked."""
        found = bisect_right(self._timestamps, timestamp_ms)
        return TimeEntry(self._timestamps[found - 1], self._offsets[found - 1]) if found else BEFORE_FIRST

    def around(self, relative_offset: int) -> list[TimeEntry]:
        """The last entry before this offset and the first at or after it, if they exist."""
        found = bisect_left(self._offsets, relative_offset)
        near = range(max(found - 1, 0), min(found + 1, len(self._timestamps)))
        return [TimeEntry(self._timestamps[place], self._offsets[place]) for place in near]

    def truncate(self, relative_offset: int) -> None:
        """Drops the entries at or after this offset."""
        keep = bisect_left(self._offsets, relative_offset)
        del self._timestamps[keep:]
        del self._offsets[keep:]

    def to_bytes(self, first_entry: int = 0) -> bytes:
        """The file's content from this entry on."""
        offsets = self._offsets[first_entry:]
        halves = array("i")
        halves.frombytes(self._timestamps[first_entry:].tobytes())
        little = sys.byteorder == "little"
        entries = array("i", bytes(len(offsets) * ENTRY_SIZE))
        entries[0::3] = halves[1::2] if little else halves[0::2]
        entries[1::3] = halves[0::2] if little else halves[1::2]
        entries[2::3] = offsets
        if little:
            entries.byteswap()
        return entries.tobytes()

    @classmethod
    def from_bytes(cls, data: Buffer) -> "TimeIndex":
        """The index in a file. DamagedIndex if it cannot be one."""
        if len(data) % ENTRY_SIZE:
            raise DamagedIndex(f"time index: {len(data)} bytes are not a multiple of {ENTRY_SIZE}")
        entries = array("i")
        entries.frombytes(data)
        little = sys.byteorder == "little"
        if little:
            entries.byteswap()
        index = cls()
        index._offsets = offsets = entries[2::3]
        halves = array("i", bytes(len(offsets) * 8))
        halves[0::2] = entries[1::3] if little else entries[0::3]
        halves[1::2] = entries[0::3] if little else entries[1::3]
        index._timestamps = timestamps = array("q", halves.tobytes())
        if offsets:
            if timestamps[0] < 0 or offsets[0] < 0:
                raise DamagedIndex(f"time index: negative first entry {timestamps[0]} at {offsets[0]}")
            if not all(map(lt, timestamps, timestamps[1:])) or not all(map(le, offsets, offsets[1:])):
                raise DamagedIndex("time index: the entries do not increase")
        return index
