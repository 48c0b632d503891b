"""The sparse offset index of a segment: where in the log file to start looking for an offset.

An entry is 8 bytes: int32 offset relative to the segment's base offset, int32 position in the log file. Both increase
strictly. In memory it is two arrays of int32, so a lookup is one bisection in C and an entry costs 8 bytes.
"""

import sys
from array import array
from bisect import bisect_left, bisect_right
from operator import lt

from cordwood.records.batch import Buffer
from cordwood.segments.damaged import DamagedIndex

ENTRY_SIZE = 8
MAX_RELATIVE_OFFSET = 2**31 - 1
"""A segment spans at most this many offsets: the index could not address more."""

assert array("i").itemsize == 4


class OffsetIndex:
    """All offsets here are relative to the segment's base offset."""

    __slots__ = ("_offsets", "_positions")

    def __init__(self) -> None:
        self._offsets = array("i")
        self._positions = array("i")

    def __len__(self) -> int:
        return len(self._offsets)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, OffsetIndex):
            return NotImplemented
        return self._offsets == other._offsets and self._positions == other._positions

    __hash__ = None  # type: ignore[assignment]

    @property
    def size_bytes(self) -> int:
        """The size of its file."""
        return len(self._offsets) * ENTRY_SIZE

    @property
    def last_offset(self) -> int:
        """The relative offset of the last entry, -1 if there is none."""
        return self._offsets[-1] if self._offsets else -1

    @property
    def last_position(self) -> int:
        """The log position of the last entry, -1 if there is none."""
        return self._positions[-1] if self._positions else -1

    def entries(self) -> list[tuple[int, int]]:
        """(relative offset, position) in file order."""
        return list(zip(self._offsets, self._positions, strict=True))

    def append(self, relative_offset: int, position: int) -> None:
        """Adds an entry: the batch at this position ends with this offset, and earlier offsets are before it.

        Kafka indexes a batch by its last offset; a reader starts at the entry at or before its target.
        """
        assert relative_offset > self.last_offset, (relative_offset, self.last_offset)
        assert position > self.last_position, (position, self.last_position)
        # The offset last: a lookup in another thread then never finds an entry that is not whole.
        self._positions.append(position)
        self._offsets.append(relative_offset)

    def lookup(self, relative_offset: int) -> int:
        """A log position at or before the batch that holds this offset: 0 where no entry helps."""
        found = bisect_right(self._offsets, relative_offset)
        return self._positions[found - 1] if found else 0

    def entry_before(self, relative_offset: int) -> tuple[int, int]:
        """The last entry at or before this offset; (-1, 0) where there is none: begin at the start."""
        found = bisect_right(self._offsets, relative_offset)
        return (self._offsets[found - 1], self._positions[found - 1]) if found else (-1, 0)

    def position_up_to(self, position: int) -> int:
        """The last indexed log position at or before this one, which is the start of a batch; 0 if there is none."""
        found = bisect_right(self._positions, position)
        return self._positions[found - 1] if found else 0

    def offset_from(self, position: int) -> int | None:
        """An offset of the first indexed batch at or after this position; None if there is none."""
        found = bisect_left(self._positions, position)
        return self._offsets[found] if found < len(self._offsets) else None

    def truncate(self, relative_offset: int) -> None:
        """Drops the entries at or after this offset."""
        keep = bisect_left(self._offsets, relative_offset)
        del self._offsets[keep:]
        del self._positions[keep:]

    def to_bytes(self, first_entry: int = 0) -> bytes:
        """The file's content from this entry on."""
        offsets, positions = self._offsets[first_entry:], self._positions[first_entry:]
        entries = array("i", bytes(len(offsets) * ENTRY_SIZE))
        entries[0::2] = offsets
        entries[1::2] = positions
        if sys.byteorder == "little":
            entries.byteswap()
        return entries.tobytes()

    @classmethod
    def from_bytes(cls, data: Buffer, *, log_size: int | None = None) -> "OffsetIndex":
        """The index in a file. DamagedIndex if it cannot be one, or points beyond a log file of log_size bytes."""
        if len(data) % ENTRY_SIZE:
            raise DamagedIndex(f"offset index: {len(data)} bytes are not a multiple of {ENTRY_SIZE}")
        entries = array("i")
        entries.frombytes(data)
        if sys.byteorder == "little":
            entries.byteswap()
        index = cls()
        index._offsets = offsets = entries[0::2]
        index._positions = positions = entries[1::2]
        if offsets:
            if offsets[0] < 0 or positions[0] < 0:
                raise DamagedIndex(f"offset index: negative first entry {offsets[0]} at {positions[0]}")
            if not _strictly_increasing(offsets) or not _strictly_increasing(positions):
                raise DamagedIndex("offset index: the entries do not increase")
            if log_size is not None and positions[-1] >= log_size:
                raise DamagedIndex(f"offset index: position {positions[-1]} is beyond the log's {log_size} bytes")
        return index


def _strictly_increasing(numbers: "array[int]") -> bool:
    return all(map(lt, numbers, numbers[1:]))
