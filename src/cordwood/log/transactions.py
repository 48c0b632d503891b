"""Finds the aborted transactions that a read_committed reader must skip in a range of offsets."""

from typing import TYPE_CHECKING

from cordwood.log import replay
from cordwood.log.lookup import LogSlice
from cordwood.segments.damaged import DamagedIndex
from cordwood.segments.transaction_index import AbortedTransaction, TransactionIndex

if TYPE_CHECKING:
    from cordwood.log.log import Log


def aborted_between(log: "Log", from_offset: int, end_offset: int) -> list[tuple[int, int]]:
    """Producer id and first offset of the aborted transactions that touch [from_offset, end_offset), in the order of
    markers.

    A transaction's entry is in the segment of its marker, which can be far behind its data: the search goes on until an
    entry shows that no later transaction reaches back.
    """
    found: list[tuple[int, int]] = []
    for place in range(log.place_of(from_offset), len(log.segments)):
        entries, complete = _index_of(log, place).collect(from_offset, end_offset)
        found.extend((entry.producer_id, entry.first_offset) for entry in entries)
        if complete:
            break
    return found


def end_of_slice(log: "Log", found: LogSlice) -> int:
    """An offset beyond the last record of the slice, as close to it as the index can tell."""
    place = log.place_of(found.base_offset)
    segment, end_offset = log.segments[place], log.end_of_segment(place)
    if segment.file is not found.file:
        # Compaction has replaced the segment; the new one may end later.
        return log.log_end_offset
    indexes = segment.indexes
    following = None if indexes is None else indexes.offsets.offset_from(found.position + found.length)
    return end_offset if following is None else segment.base_offset + following


def aborted_later(log: "Log", place: int) -> tuple[AbortedTransaction, ...]:
    """Aborted transactions with data before the segment at this place and a marker in it or behind it."""
    if place >= len(log.segments):
        return ()
    end_offset = log.segments[place].base_offset
    found = (entry for later in range(place, len(log.segments)) for entry in _index_of(log, later).entries())
    return tuple(entry for entry in found if entry.first_offset < end_offset)


def check_indexes(log: "Log", count: int) -> None:
    """Rebuilds wrong transaction indexes of the first `count` segments: compaction reads their files."""
    for place in range(count):
        if log.segments[place].witnessed is not None:
            _index_of(log, place)


def _index_of(log: "Log", place: int) -> TransactionIndex:
    segment = log.segments[place]
    try:
        return segment.load_transactions()
    except DamagedIndex:
        replay.rebuild_transactions(log, place)
        return segment.load_transactions()
