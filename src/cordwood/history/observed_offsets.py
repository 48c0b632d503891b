"""The observations of every offset of a partition, in columns: about 25 bytes per offset.

This module owns the memory of a check. A value is kept as its 64-bit hash only: suspects are looked up again in the
history itself, with whole values, so a collision never becomes a finding. Pages keep offsets that start at a billion,
or leap, as cheap as offsets from 0.
"""

from array import array
from collections.abc import Iterator
from enum import IntFlag

PAGE_OFFSETS = 1024
NO_VALUE = 0
MAX_EVENTS = 2**32 - 1
"""Event numbers are kept in 32 bits."""


class Mark(IntFlag):
    """Flags of an offset, stored as plain ints in the columns."""

    ACKED = 1
    ACKED_BY_ALL = 2
    READ = 4
    READ_AS_COMMITTED = 8
    ACKED_BY_LEADER = 16


ACKED = int(Mark.ACKED)
ACKED_BY_ALL = int(Mark.ACKED_BY_ALL)
READ = int(Mark.READ)
READ_AS_COMMITTED = int(Mark.READ_AS_COMMITTED)
ACKED_BY_LEADER = int(Mark.ACKED_BY_LEADER)


def value_hash(value: str) -> int:
    """64 bits that stand for a value; never NO_VALUE."""
    return (hash(value) & 0xFFFF_FFFF_FFFF_FFFF) or 1


class Page:
    """The columns of PAGE_OFFSETS neighbouring offsets."""

    __slots__ = ("acked_at", "begun_at", "marks", "producer", "transaction", "value")

    def __init__(self) -> None:
        self.value = array("Q", bytes(8 * PAGE_OFFSETS))
        # Event numbers of the send and of its acknowledgement; 0 is none, as they count from 1.
        self.begun_at = array("I", bytes(4 * PAGE_OFFSETS))
        self.acked_at = array("I", bytes(4 * PAGE_OFFSETS))
        # Indexes into the tables of producers and transactions, plus one; 0 is none.
        self.producer = array("I", bytes(4 * PAGE_OFFSETS))
        self.transaction = array("I", bytes(4 * PAGE_OFFSETS))
        self.marks = bytearray(PAGE_OFFSETS)


class Positions:
    """The offsets of one partition that any client has seen."""

    def __init__(self) -> None:
        self._pages: dict[int, Page] = {}

    def page_for(self, offset: int) -> tuple[Page, int]:
        """The page that holds this offset, made if need be, and the index within it."""
        number, index = divmod(offset, PAGE_OFFSETS)
        page = self._pages.get(number)
        if page is None:
            page = self._pages[number] = Page()
        return page, index

    def pages(self) -> Iterator[tuple[int, Page]]:
        """First offset and page, in the order of offsets."""
        for number in sorted(self._pages):
            yield number * PAGE_OFFSETS, self._pages[number]

    def known_between(self, start: int, end: int) -> Iterator[tuple[int, Page, int]]:
        """Offset, page and index of the known offsets in [start, end), in order."""
        first, last = start // PAGE_OFFSETS, (end - 1) // PAGE_OFFSETS
        if last - first < len(self._pages):
            numbers = [number for number in range(first, last + 1) if number in self._pages]
        else:
            numbers = sorted(number for number in self._pages if first <= number <= last)
        for number in numbers:
            page = self._pages[number]
            base = number * PAGE_OFFSETS
            for index in range(max(start - base, 0), min(end - base, PAGE_OFFSETS)):
                if page.value[index]:
                    yield base + index, page, index
