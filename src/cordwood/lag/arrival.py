"""When a record came into the log, from a few places of the log whose times are known."""

from collections.abc import Iterable
from typing import NamedTuple


class Mark(NamedTuple):
    """By this time the log had grown to this offset: all records before it are as old, or older."""

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
    # The record at `before` came just after it, the last one before `after` came with it.
    share = (offset + 1 - before.offset) / (after.offset - before.offset)
    return round(before.at_ms + share * (after.at_ms - before.at_ms))
