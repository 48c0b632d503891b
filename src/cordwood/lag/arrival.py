"""Estimates when a record was appended, from a few offsets with known times."""

from collections.abc import Iterable
from typing import NamedTuple


class Mark(NamedTuple):
    """A time at which the log had grown to an offset: all earlier records are at least as old."""

    offset: int
    at_ms: int


def arrival_ms(offset: int, marks: Iterable[Mark]) -> int | None:
    """When the record at this offset came: between the nearest marks around it, by proportion. None: no mark is later.

    Marks may come in any order and may contradict each other, as clients' timestamps do. Without an earlier mark it is
    the later mark's time: the record is at least that old.
    """
    before: Mark | None = None
    after: Mark | None = None
    for mark in marks:
        if mark.offset <= offset:
            if before is None or mark > before:
                before = mark
        elif after is None or mark < after:
            after = mark
    if after is None:
        return None
    if before is None or before.at_ms >= after.at_ms:
        return after.at_ms
    # The record at `before.offset` came just after that mark, the last record before `after.offset` with that mark.
    share = (offset + 1 - before.offset) / (after.offset - before.offset)
    return round(before.at_ms + share * (after.at_ms - before.at_ms))
