"""Reads a log: for tailing readers from memory, for all others through the indexes."""

from bisect import bisect_right
from collections.abc import Callable
from functools import partial

from cordwood.log.parts.offsets import LogOffsets
from cordwood.log.parts.report import LogReports
from cordwood.log.parts.saved_state import SavedState
from cordwood.log.parts.segment import Segment, base_offset_of
from cordwood.log.parts.segments import LogSegments
from cordwood.log.reading.lookup import LogSlice, NotABatch, NotCached, find_slice
from cordwood.log.reading.scrubbing import confirm
from cordwood.model.errors import DamagedLog


class ColdRead(Exception):
    """The read needs the disk: the caller calls `finish` in a thread."""

    def __init__(self, finish: Callable[[], LogSlice | None]) -> None:
        super().__init__("not in memory")
        self.finish = finish


def read_recent(
    segment: Segment, first: int, max_bytes: int, end_offset: int, log_end_offset: int, minimum_one_batch: bool
) -> LogSlice | None:
    """Batches from the recent batch at place `first` on, whose positions are in memory. In the loop only."""
    offsets, positions = segment.recent_offsets, segment.recent_positions
    assert offsets is not None
    assert positions is not None
    start = positions[first]
    if end_offset >= log_end_offset:
        end = segment.size
    else:
        end = positions[bisect_right(offsets, end_offset) - 1]
    if end - start > max_bytes:
        cut = bisect_right(positions, start + max_bytes) - 1
        if cut > first:
            end = positions[cut]
        elif not minimum_one_batch:
            return None
        elif first + 1 < len(positions):
            end = positions[first + 1]
    return LogSlice(segment.file, start, end - start, offsets[first]) if end > start else None


class Search:
    """A search for batches through the indexes, which notes the damage that it meets."""

    __slots__ = ("_offsets", "_reports", "_saved", "_segments")

    def __init__(self, segments: LogSegments, offsets: LogOffsets, saved: SavedState, reports: LogReports) -> None:
        self._segments = segments
        self._offsets = offsets
        self._saved = saved
        self._reports = reports

    def run(
        self, offset: int, max_bytes: int, end_offset: int, minimum_one_batch: bool, may_block: bool, in_loop: bool
    ) -> LogSlice | None:
        """Finds the batches. Without `in_loop` it may run in any thread, beside appends, and may block."""
        # Appends and retention go on beside a thread: the search keeps to the segments and the end of this moment.
        segments, then, log_end_offset = self._segments, self._segments.all, self._offsets.end
        place = bisect_right(then, offset, key=base_offset_of) - 1
        if place < 0 and (damage := self._reports.damage_at(offset)) is not None:
            # The log's files are gone: a reader must not step over them to the first records behind.
            raise DamagedLog(str(damage))
        place, examined = max(place, 0), False
        while place < len(then):
            segment = then[place]
            segment_end = then[place + 1].base_offset if place + 1 < len(then) else log_end_offset
            try:
                if segment.suspect:
                    if segment is not segments.active and not may_block:
                        raise NotCached  # examining a large segment takes seconds
                    if segment is not segments.active or in_loop:
                        self._examine(segment, segment_end)
                indexes = segment.indexes
                if indexes is None:
                    if not may_block:
                        raise NotCached
                    indexes = segments.indexes_of(segment, segment_end)
                has_it, found = find_slice(
                    segment,
                    indexes,
                    segment_end,
                    offset,
                    end_offset,
                    max_bytes,
                    minimum_one_batch=minimum_one_batch,
                    may_block=may_block,
                )
            except NotCached:
                raise ColdRead(
                    partial(self.run, offset, max_bytes, end_offset, minimum_one_batch, True, False)
                ) from None
            except NotABatch as error:
                segment.suspect = True
                if examined or (segment is segments.active and not in_loop):
                    raise self._damaged(segment, f"{error} (offset {offset})") from None
                if segment is segments.active or may_block:
                    self._examine(segment, segment_end)
                    examined = True
                continue
            except DamagedLog as error:
                raise self._damaged(segment, str(error)) from None
            if has_it:
                return found
            place, examined = place + 1, False
        return None

    def _damaged(self, segment: Segment, reason: str) -> DamagedLog:
        return DamagedLog(f"{self._segments.directory.partition}: {segment.file.path}: {reason}")

    def _examine(self, segment: Segment, end_offset: int) -> None:
        """Reads every batch of a segment whose index or log is wrong, and finds the readable batches."""
        active = segment is self._segments.active
        if active:
            segment.examine(end_offset, self._segments.settings.index_interval_bytes, closed=False)
        else:
            confirm(self._segments, segment, end_offset)
        self._reports.note_holes(segment)
        if active:
            self._saved.checkpoint_due = True
