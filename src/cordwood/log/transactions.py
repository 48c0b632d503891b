"""Which aborted transactions a read_committed consumer must skip in a range of offsets."""

from typing import TYPE_CHECKING

from cordwood.log import replay
from cordwood.segments.damaged import DamagedIndex

if TYPE_CHECKING:
    from cordwood.log.log import Log


def aborted_between(log: "Log", from_offset: int, end_offset: int) -> list[tuple[int, int]]:
    """(producer id, first offset) of those that touch [from_offset, end_offset), in the order of their markers.

    A transaction's entry is in the segment that holds its marker, which can be far behind its data: the search goes on
    until an entry says that nothing later can reach back.
    """
    found: list[tuple[int, int]] = []
    for place in range(log.place_of(from_offset), len(log.segments)):
        segment = log.segments[place]
        try:
            transactions = segment.load_transactions()
        except DamagedIndex:
            replay.rebuild_transactions(log, place)
            transactions = segment.load_transactions()
        entries, complete = transactions.collect(from_offset, end_offset)
        found.extend((entry.producer_id, entry.first_offset) for entry in entries)
        if complete:
            break
    return found
