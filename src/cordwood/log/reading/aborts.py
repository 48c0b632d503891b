"""Finds the aborted transactions that a read_committed reader must skip in a range of offsets.

Each segment has an index of the transactions whose abort marker is in it. An index that is wrong is rebuilt at its next
use.
"""

from cordwood.log.parts import replay
from cordwood.log.parts.offsets import LogOffsets
from cordwood.log.parts.saved_state import SavedState
from cordwood.log.parts.segments import LogSegments
from cordwood.log.reading.lookup import LogSlice
from cordwood.segments.damaged import DamagedIndex
from cordwood.segments.transaction_index import AbortedTransaction, TransactionIndex


class Aborts:
    """The aborted transactions of one log."""

    __slots__ = ("_offsets", "_saved", "_segments")

    def __init__(self, segments: LogSegments, offsets: LogOffsets, saved: SavedState) -> None:
        self._segments = segments
        self._offsets = offsets
        self._saved = saved

    def between(self, from_offset: int, end_offset: int) -> list[tuple[int, int]]:
        """Producer id and first offset of the aborted transactions that touch [from_offset, end_offset), in the order
        of markers.

        A transaction's entry is in the segment of its marker, which can be far behind its data: the search goes on
        until an entry shows that no later transaction reaches back.
        """
        found: list[tuple[int, int]] = []
        for place in range(self._segments.place_of(from_offset), len(self._segments)):
            entries, complete = self._index_of(place).collect(from_offset, end_offset)
            found.extend((entry.producer_id, entry.first_offset) for entry in entries)
            if complete:
                break
        return found

    def in_slice(self, found: LogSlice, from_offset: int, end_offset: int) -> list[tuple[int, int]]:
        """The aborted transactions that touch the slice; all later ones would be too many for one answer."""
        return self.between(from_offset, min(end_offset, self._end_of_slice(found)))

    def _end_of_slice(self, found: LogSlice) -> int:
        """An offset beyond the last record of the slice, as close to it as the index can tell."""
        place = self._segments.place_of(found.base_offset)
        segment, end_offset = self._segments[place], self._segments.end_of(place)
        if segment.file is not found.file:
            # Compaction has replaced the segment; the new one may end later.
            return self._offsets.end
        indexes = segment.indexes
        following = None if indexes is None else indexes.offsets.offset_from(found.position + found.length)
        return end_offset if following is None else segment.base_offset + following

    def later(self, place: int) -> tuple[AbortedTransaction, ...]:
        """Aborted transactions with data before the segment at this place and a marker in it or behind it."""
        if place >= len(self._segments):
            return ()
        end_offset = self._segments[place].base_offset
        found = (entry for later in range(place, len(self._segments)) for entry in self._index_of(later).entries())
        return tuple(entry for entry in found if entry.first_offset < end_offset)

    def check_indexes(self, count: int) -> None:
        """Rebuilds wrong transaction indexes of the first `count` segments: compaction reads their files."""
        for place in range(count):
            if self._segments[place].witnessed is not None:
                self._index_of(place)

    def _index_of(self, place: int) -> TransactionIndex:
        segment = self._segments[place]
        try:
            return segment.load_transactions()
        except DamagedIndex:
            replay.rebuild_transactions(self._segments, self._offsets, self._saved, place)
            return segment.load_transactions()
