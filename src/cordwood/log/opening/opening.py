"""Opens a log: cheaply after a clean stop, by recovery otherwise.

After a clean stop the recovery point is the end of the log, so opening only lists a directory. The first use checks the
end of the active segment, and recovers the log if the end is not as the clean stop left it.

`beginning.py` judges whether first files are missing.
"""

from contextlib import suppress

from cordwood.log.opening.beginning import Beginning
from cordwood.log.opening.partition_files import sort_out
from cordwood.log.opening.recovery import Recovery, first_timestamp_ms
from cordwood.log.parts import replay
from cordwood.log.parts.offsets import LogOffsets
from cordwood.log.parts.replayed import Replayed
from cordwood.log.parts.report import LogReports
from cordwood.log.parts.saved_state import SavedState
from cordwood.log.parts.segment import SEGMENT_SUFFIXES, Deletion, Segment
from cordwood.log.parts.segments import LogSegments
from cordwood.model.errors import DamagedLog
from cordwood.segments.abort_witness import FILE_NAME as ABORTS_FILE
from cordwood.segments.abort_witness import decode_witness
from cordwood.segments.damaged import DamagedCheckpoint, DamagedIndex
from cordwood.segments.dropped_deletions import FILE_NAME as DROPPED_FILE
from cordwood.segments.dropped_deletions import decode_dropped
from cordwood.segments.filesystem import Filesystem
from cordwood.segments.indexes import SegmentIndexes
from cordwood.segments.names import Stage, Suffix, segment_file
from cordwood.segments.offset_index import OffsetIndex
from cordwood.segments.partition_metadata import FILE_NAME as METADATA_FILE
from cordwood.segments.time_index import TimeIndex


class Opening:
    """Fills the state of one log from its files."""

    __slots__ = ("_first_file", "_offsets", "_replayed", "_reports", "_saved", "_segments", "_start_is_known")

    def __init__(
        self,
        segments: LogSegments,
        offsets: LogOffsets,
        replayed: Replayed,
        saved: SavedState,
        reports: LogReports,
        *,
        start_is_known: bool,
        first_file: int | None,
    ) -> None:
        self._start_is_known = start_is_known
        self._first_file = first_file
        self._segments = segments
        self._offsets = offsets
        self._replayed = replayed
        self._saved = saved
        self._reports = reports

    def open_files(self, *, clean: bool) -> None:
        """Takes over the files on disk."""
        segments, offsets = self._segments, self._offsets
        directory = segments.directory
        filesystem, path = directory.filesystem, directory.path
        names = filesystem.list(path)
        if names:
            files = sort_out(filesystem, path, names, offsets.start if self._start_is_known else None)
            segments.deletions = [_dropped(filesystem, path, base) for base in files.dropped]
            segments.all = tuple(Segment.existing(filesystem, path, base) for base in files.segments)
            beginning = Beginning(segments, offsets, files.dropped, self._first_file)
            clean &= not beginning.settle(start_is_known=self._start_is_known)
            self._saved.snapshots = files.snapshots
        if DROPPED_FILE in names:
            with suppress(DamagedCheckpoint):  # counts as lost: the data directory knows how far compaction came
                segments.dropped = decode_dropped(filesystem.read_bytes(f"{path}/{DROPPED_FILE}"))
        if ABORTS_FILE in names:
            witness = decode_witness(filesystem.read_bytes(f"{path}/{ABORTS_FILE}"))
            for segment in segments if witness else ():
                segment.witnessed = witness.get(segment.base_offset)
        had_records = self._first_file is not None or max(offsets.recovery_point, offsets.witnessed_end) > offsets.start
        if not segments.all and not had_records:
            offsets.begin_at(offsets.start)
            self._saved.forget_later(offsets)
            return
        if clean and self._can_be_trusted():
            if METADATA_FILE not in names:
                directory.restore_topic_id()
            segments.active = segments[-1]
            self._replayed.wait_for_first_use(self._make_ready)
            return
        self._recover()

    def _can_be_trusted(self) -> bool:
        """True if the files look as a clean stop leaves them, by names and sizes alone."""
        segments, recovery_point = self._segments, self._offsets.recovery_point
        if not segments.all or self._offsets.start > recovery_point:
            return False
        last = segments[-1]
        return last.base_offset < recovery_point if last.size else last.base_offset == recovery_point

    def _make_ready(self) -> None:
        """Loads the indexes at the first use after a clean stop, and checks that the log ends where it should."""
        segments, replayed = self._segments, self._replayed
        assert not replayed.ready
        segment = segments.active
        assert segment is not None
        try:
            indexes, begun_ms = self._load_indexes(segment)
        except (FileNotFoundError, DamagedIndex, DamagedLog):
            self._recover()
        else:
            segment.indexes = indexes
            segment.roll_at_ms = segments.roll_time_ms(begun_ms)
            replay.restore_history(segments, self._offsets, replayed, self._saved, self._reports)
        self._reports.tell_late()

    def _load_indexes(self, segment: Segment) -> tuple[SegmentIndexes, int]:
        """The indexes of the active segment, and the time of its beginning. Raises DamagedLog if it ends elsewhere."""
        directory, end_offset = self._segments.directory, self._offsets.end
        opened_ms = self._segments.opened.wall_ms
        indexes = SegmentIndexes(segment.base_offset, self._segments.settings.index_interval_bytes)
        if not segment.size:
            return indexes, opened_ms
        read_bytes = directory.filesystem.read_bytes
        indexes.offsets = OffsetIndex.from_bytes(read_bytes(segment.path(Suffix.INDEX)), log_size=segment.size)
        indexes.times = TimeIndex.from_bytes(read_bytes(segment.path(Suffix.TIME_INDEX)))
        segment.check_times(indexes.times)
        segment.saved_offsets, segment.saved_times = len(indexes.offsets), len(indexes.times)
        scan = indexes.resume(segment.file)
        last_indexed = segment.base_offset + max(indexes.offsets.last_offset, indexes.times.last.relative_offset)
        if scan.invalid is not None or scan.next_offset != end_offset or last_indexed >= scan.next_offset:
            raise DamagedLog(f"{directory.partition} does not end at {end_offset} as the clean stop said")
        return indexes, first_timestamp_ms(segment, opened_ms)

    def _recover(self) -> None:
        Recovery(self._segments, self._offsets, self._saved, self._reports).run()
        replay.restore_history(self._segments, self._offsets, self._replayed, self._saved, self._reports)


def _dropped(filesystem: Filesystem, directory: str, base_offset: int) -> Deletion:
    """A segment that retention dropped before the crash, whose files still have to be removed."""
    paths = [segment_file(directory, base_offset, suffix, Stage.DELETED) for suffix in SEGMENT_SUFFIXES]
    return Deletion(None, filesystem.open(paths[0]), [path for path in paths if filesystem.exists(path)])
