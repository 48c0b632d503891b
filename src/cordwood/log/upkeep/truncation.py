"""Cuts the log: at its end, because a leader's history diverged; at its start, for good.

The recovery point is lowered, durably, before anything above it is cut. Otherwise a crash in between would make
recovery report the missing end as damage, and never give its offsets out again.
"""

from cordwood.log.parts import replay
from cordwood.log.parts.offsets import LogOffsets
from cordwood.log.parts.producers import ProducerStates
from cordwood.log.parts.replayed import Replayed
from cordwood.log.parts.report import LogReports
from cordwood.log.parts.saved_state import SavedState
from cordwood.log.parts.segment import SEGMENT_SUFFIXES, Segment
from cordwood.log.parts.segments import LogSegments
from cordwood.log.reading.lookup import HeaderReader, find_batch_with
from cordwood.log.upkeep import retention, rolling
from cordwood.model.errors import ErrorCode, ProtocolError
from cordwood.segments.filesystem import remove_if_there


class Truncation:
    """A cut of one log at its end. The cut changes all of the log's state."""

    def __init__(
        self,
        segments: LogSegments,
        offsets: LogOffsets,
        replayed: Replayed,
        saved: SavedState,
        reports: LogReports,
    ) -> None:
        self._segments = segments
        self._offsets = offsets
        self._replayed = replayed
        self._saved = saved
        self._reports = reports

    def truncate_to(self, offset: int) -> None:
        """Cuts all batches that end at or after this offset; if a batch spans the offset, the log ends at its start."""
        segments, offsets = self._segments, self._offsets
        if offset >= offsets.end:
            return
        self._load_producers()
        place = segments.place_of(offset)
        segment = segments[place]
        position, end_offset = self._find_cut(segment, segments.end_of(place), offset)
        if offset < max(offsets.start, segments[0].base_offset):
            # A log that was filled from a compacted leader begins behind its start: no batch of it is left either.
            self.restart_at(offset)
            return
        if end_offset <= offsets.start:
            # No readable batch is left, but the batches before the start still give the state of producers.
            offsets.lower_recovery_point(end_offset)
            offsets.end = end_offset
            self._restore_history()
            self._restart(offsets.start, self._replayed.producers)
            return
        offsets.lower_recovery_point(end_offset)
        offsets.truncations += 1
        self._remove_segments(segments[place + 1 :])
        self._cut_segment(segment, position, end_offset)
        segments.keep_only(segments[: place + 1], segment)
        offsets.end_at(end_offset)
        self._saved.end_at(end_offset)
        self._restore_history()

    def restart_at(self, offset: int) -> None:
        """Drops all batches and producers; the empty log goes on at this offset."""
        self._load_producers()
        self._offsets.lower_recovery_point(offset)
        directory = self._segments.directory
        if offset and not directory.filesystem.exists(directory.path):
            # Another data directory that comes back may have an older log of the partition. Only with a directory here
            # does the start see that there are two.
            self._replayed.epochs_changed |= directory.make()
            directory.filesystem.sync_directory(directory.parent)
        self._restart(offset, ProducerStates())

    def _load_producers(self) -> None:
        """Loads the producers before the files that they come from are cut."""
        if not self._replayed.ready:
            self._replayed.make_ready()

    def _restart(self, offset: int, producers: ProducerStates) -> None:
        segments, saved = self._segments, self._saved
        self._offsets.truncations += 1
        self._remove_segments(segments.all)
        segments.keep_only((), None)
        saved.forget_all()
        self._offsets.begin_at(offset)
        saved.end_at(offset)
        directory = segments.directory
        if directory.filesystem.exists(directory.path):
            saved.save_only(offset, producers)
            # An empty segment keeps the next offset over a crash.
            rolling.begin_segment(segments, self._replayed, offset, segments.opened.wall_ms)
            directory.sync_names()
        self._restore_history()

    def _restore_history(self) -> None:
        replay.restore_history(self._segments, self._offsets, self._replayed, self._saved, self._reports)

    def _remove_segments(self, removed: tuple[Segment, ...]) -> None:
        """Removes segments, the last one first, so that a crash leaves a log without a gap."""
        directory = self._segments.directory
        for segment in reversed(removed):
            segment.file.close()
            self._segments.loaded_indexes.forget(segment)
            for suffix in SEGMENT_SUFFIXES:
                remove_if_there(directory.filesystem, segment.path(suffix))
            # The name may be used again; readers of this file must not find the new one.
            segment.file.path += ".gone"
        if removed:
            directory.sync_names()

    def _find_cut(self, segment: Segment, end_offset: int, offset: int) -> tuple[int, int]:
        """Position and offset at which the segment must end so that no batch reaches the offset."""
        indexes = segment.load_indexes(end_offset, self._segments.settings.index_interval_bytes)
        reader = HeaderReader(segment.file, segment.size, may_block=True)
        place = find_batch_with(reader, segment, indexes, offset, end_offset, segment.size)
        if place is None:
            return segment.size, offset
        return place.position, min(offset, place.base_offset)

    def _cut_segment(self, segment: Segment, position: int, end_offset: int) -> None:
        indexes = segment.indexes
        assert indexes is not None
        self._segments.loaded_indexes.forget(segment)
        segment.file.truncate(position)
        segment.file.sync()
        segment.size = position
        indexes.truncate(end_offset, segment.file)
        segment.full = False
        segment.holes = tuple(hole for hole in segment.holes if hole.end_position <= position)
        segment.saved_offsets = min(segment.saved_offsets, len(indexes.offsets))
        segment.saved_times = min(segment.saved_times, len(indexes.times))
        segment.roll_at_ms = self._segments.roll_time_ms(self._segments.opened.wall_ms)
        segment.forget_recent()


def delete_records_before(
    segments: LogSegments, offsets: LogOffsets, replayed: Replayed, saved: SavedState, offset: int
) -> None:
    """Moves the log's start to this offset, and drops segments that lie wholly before it. Raises OFFSET_OUT_OF_RANGE
    if the log does not reach the offset."""
    if offset > offsets.end or offset < 0:
        raise ProtocolError(
            ErrorCode.OFFSET_OUT_OF_RANGE,
            f"{segments.directory.partition} ends at {offsets.end}: records before {offset} cannot be deleted.",
        )
    if offset < offsets.start:
        return
    offsets.move_start(offset)
    replayed.start_at(offset)
    retention.delete_before_start(segments, offsets, replayed, saved)
