"""Judges the beginning of a log when it is opened: the reason why its first file may lie behind its saved start.

A log whose first files are missing looks as if retention had removed them, or as if it had been filled from a leader
whose compaction had removed the first batches. The first row that holds decides:

| | the log |
| --- | --- |
| files that retention dropped are still there, renamed | begins at its first file: its start was not saved yet |
| its leader epochs begin at the first file, or behind it | misses nothing, and keeps its start: it was filled so |
| something vouches for files before the first one | misses these files |
| none of these | begins at its first file, and is in doubt: first files may be missing |

The recovery point vouches, and so does a witness that the log began with an earlier file (segments/end_witness.py):
before the first checkpoint nothing else is known. The log start is on disk before retention removes a file, and the
leader epochs before the recovery point moves. A file that holds no batch takes the place of missing ones, so that their
offsets are damage, which is reported, refused to readers, and repaired from another replica. Followers take over no
start that is in doubt: another replica says whether it is right (`node/partitions/doubtful_logs.py`).
"""

from collections.abc import Sequence
from contextlib import suppress
from typing import Final

from cordwood.log.parts.offsets import LogOffsets
from cordwood.log.parts.replay import saved_epochs
from cordwood.log.parts.segment import SEGMENT_SUFFIXES, Segment
from cordwood.log.parts.segments import LogSegments
from cordwood.segments.damaged import DamagedCheckpoint
from cordwood.segments.filesystem import remove_if_there
from cordwood.segments.names import Suffix, segment_file
from cordwood.segments.scan import SegmentScan

_MISSING: Final = "The files of offsets"
"""The first words of a file that takes the place of missing ones."""

_LONGEST_SUBSTITUTE: Final = 200


class Beginning:
    """The beginning of one log, whose segments are those on disk."""

    def __init__(
        self, segments: LogSegments, offsets: LogOffsets, dropped: Sequence[int], first_file: int | None
    ) -> None:
        """`dropped`: the base offsets of files that retention dropped, which are among the deletions of `segments`.
        `first_file`: the base offset of the log's first file, as a witness knows it; None: unknown."""
        self._segments = segments
        self._offsets = offsets
        self._dropped = dropped
        self._first_file = first_file

    def settle(self, *, start_is_known: bool) -> bool:
        """Sets the log's start, and adds a segment in the place of missing ones. True if some are missing.
        `start_is_known`: the log's start is on disk, as this software wrote it."""
        segments, offsets = self._segments, self._offsets
        first_record = self._first_record() if start_is_known and self._may_begin_later() else None
        if first_record is not None:
            self._drop_needless(first_record)
        if not segments.all or segments[0].base_offset <= offsets.start:
            return False
        first = segments[0].base_offset
        if first_record is not None and first_record >= first and not self._dropped:
            return False
        explained = self._explained()
        if self._vouched(first, start_is_known=start_is_known) and not explained:
            self._substitute(max(offsets.start, first_record or 0, self._first_file or 0), first)
            # The files behind the missing ones show how far the log came: recovery cuts none of them.
            offsets.witnessed_end = max(offsets.witnessed_end, first)
            return True
        offsets.start = first
        offsets.start_in_doubt = not explained
        return False

    def _vouched(self, first: int, *, start_is_known: bool) -> bool:
        """True if the log had files between its start and its first file."""
        if self._first_file is not None and self._first_file < first:
            return True
        return start_is_known and first <= self._offsets.recovery_point

    def _may_begin_later(self) -> bool:
        """True if the first file, by its name and size, has no record at the log's start."""
        segments = self._segments
        if not segments.all:
            return False
        return segments[0].base_offset > self._offsets.start or (
            len(segments) > 1 and segments[0].size < _LONGEST_SUBSTITUTE
        )

    def _first_record(self) -> int | None:
        """The offset from which on this log had records, by its leader epochs; None: unknown."""
        directory = self._segments.directory
        with suppress(DamagedCheckpoint):
            epochs = saved_epochs(directory.filesystem, directory.path)
            if epochs is not None and epochs.entries:
                return epochs.entries[0].start_offset
        return None

    def _explained(self) -> bool:
        """True if the files that retention dropped reach from the log's start to its first file."""
        dropped = self._dropped
        if not dropped or dropped[-1] >= self._offsets.start:
            return bool(dropped)
        # The last dropped segment may have held the log's start.
        last = self._segments.deletions[-1].file
        scan = SegmentScan(last, dropped[-1], verify_crc=False)
        for _ in scan:
            pass
        return not last.size or scan.next_offset >= self._segments[0].base_offset

    def _substitute(self, first_offset: int, end_offset: int) -> None:
        """Puts a file without a batch in the place of the missing ones."""
        segments, directory = self._segments, self._segments.directory
        text = f"{_MISSING} {first_offset} to {end_offset - 1} were missing when the log was opened."
        directory.filesystem.replace(segment_file(directory.path, first_offset, Suffix.LOG), text.encode())
        segments.all = (Segment.existing(directory.filesystem, directory.path, first_offset), *segments.all)

    def _drop_needless(self, first_record: int) -> None:
        """Removes a file that an earlier release put in the place of files that this log never had."""
        segments = self._segments
        if len(segments) == 1 or first_record < segments[1].base_offset:
            return
        needless = segments[0]
        if needless.file.read(0, len(_MISSING)) == _MISSING.encode():
            needless.file.close()
            for suffix in SEGMENT_SUFFIXES:
                remove_if_there(needless.filesystem, needless.path(suffix))
            segments.all = segments[1:]
