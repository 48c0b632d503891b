"""The segments of one partition's log: all segments, the one that takes appends, and those that wait to be saved or
removed.

The segments hold the batches; `LogOffsets` says which of them belong to the log. Code outside of this folder only reads
here, but for `take_due_deletions`.
"""

import zlib
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from typing import overload

from cordwood.log.parts.loaded_indexes import LoadedIndexes
from cordwood.log.parts.offsets import LogOffsets
from cordwood.log.parts.partition_directory import PartitionDirectory
from cordwood.log.parts.segment import Deletion, Segment, base_offset_of
from cordwood.model.moment import Moment
from cordwood.model.settings.topic_settings import TopicSettings
from cordwood.segments.dropped_deletions import FILE_NAME as DROPPED_FILE
from cordwood.segments.dropped_deletions import Dropped, encode_dropped
from cordwood.segments.filesystem import File
from cordwood.segments.indexes import SegmentIndexes


class LogSegments:
    __slots__ = (
        "_offsets",
        "active",
        "all",
        "closing",
        "deletions",
        "directory",
        "dropped",
        "ever_compacted",
        "loaded_indexes",
        "opened",
        "replacing",
        "segment_bytes",
        "settings",
    )

    def __init__(
        self,
        directory: PartitionDirectory,
        offsets: LogOffsets,
        settings: TopicSettings,
        loaded_indexes: LoadedIndexes,
        opened: Moment,
        *,
        ever_compacted: bool,
    ) -> None:
        self.directory = directory
        self._offsets = offsets
        self.settings = settings
        self.segment_bytes = settings.segment_bytes
        self.loaded_indexes = loaded_indexes
        self.opened = opened
        """The moment at which the log was opened."""
        self.ever_compacted = ever_compacted
        """True if compaction may have removed offsets, whatever the topic's present policy is."""
        self.dropped: Dropped | None = None
        """The deletions that compaction dropped, here or in the log that filled this one; None: there is no note."""
        self.all: tuple[Segment, ...] = ()
        """The segments, oldest first. The tuple is replaced whole: threads that read cold data keep it."""
        self.active: Segment | None = None
        """The last segment while it takes appends. None: the next append begins a new segment."""
        self.closing: list[Segment] = []
        """Rolled segments whose index files are not complete yet."""
        self.deletions: list[Deletion] = []
        self.replacing = False
        """True if a replacement of segments is under way, or failed after its manifest: the next start finishes it. No
        other replacement may begin: a start would take its files, which may be incomplete, for those of the first."""

    def __len__(self) -> int:
        return len(self.all)

    def __iter__(self) -> Iterator[Segment]:
        return iter(self.all)

    @overload
    def __getitem__(self, place: int) -> Segment: ...

    @overload
    def __getitem__(self, place: slice) -> tuple[Segment, ...]: ...

    def __getitem__(self, place: int | slice) -> Segment | tuple[Segment, ...]:
        return self.all[place]

    @property
    def size_bytes(self) -> int:
        return sum(segment.size for segment in self.all)

    @property
    def may_have_gaps(self) -> bool:
        """True if compaction may have removed offsets: now, or before the topic's policy was changed."""
        return self.settings.compacted or self.ever_compacted

    def save_dropped(self, dropped: Dropped) -> None:
        """Writes the note of dropped deletions, waiting for the disk. In any thread."""
        self.directory.filesystem.replace(f"{self.directory.path}/{DROPPED_FILE}", encode_dropped(dropped))
        self.dropped = dropped

    def end_of(self, place: int) -> int:
        """The end offset of the segment at this place."""
        following = place + 1
        return self.all[following].base_offset if following < len(self.all) else self._offsets.end

    def place_of(self, offset: int) -> int:
        """The place of the segment that holds the offset; 0 if all are later."""
        return max(bisect_right(self.all, offset, key=base_offset_of) - 1, 0)

    def indexes_of(self, segment: Segment, end_offset: int) -> SegmentIndexes:
        """The indexes of a segment that ends before end_offset, loaded if need be. May block, and run in threads."""
        indexes = segment.indexes
        if indexes is None:
            indexes = segment.load_indexes(end_offset, self.settings.index_interval_bytes)
            self.loaded_indexes.used(segment)
        return indexes

    def change_settings(self, settings: TopicSettings) -> None:
        if self.active is not None:
            self.active.roll_at_ms += settings.rolls_after_ms - self.settings.rolls_after_ms
        self.settings = settings
        self.segment_bytes = settings.segment_bytes

    def roll_time_ms(self, begun_ms: int) -> int:
        """The time at which a segment that was begun at `begun_ms` is old enough to be closed."""
        settings = self.settings
        jitter_ms = min(settings.segment_jitter_ms, settings.rolls_after_ms - 1)
        if jitter_ms > 0:
            # The jitter comes from the partition's name, so that partitions differ and a replay does not.
            jitter_ms = zlib.crc32(str(self.directory.partition).encode()) % (jitter_ms + 1)
        return begun_ms + settings.rolls_after_ms - jitter_ms

    # Changes

    def begin(self, base_offset: int, wall_ms: int) -> Segment:
        """Adds a new active segment, in a directory that exists."""
        directory = self.directory
        segment = Segment.create(directory.filesystem, directory.path, base_offset, self.settings.index_interval_bytes)
        segment.roll_at_ms = self.roll_time_ms(wall_ms)
        if self.settings.preallocate:
            segment.file.reserve(self.segment_bytes)
        self.all = (*self.all, segment)
        self.active = segment
        directory.note_new_names(directory.path)
        return segment

    def close_active(self) -> None:
        """Ends appends to the active segment. The next checkpoint saves its indexes."""
        segment = self.active
        assert segment is not None
        assert segment.indexes is not None
        segment.indexes.close()
        segment.forget_recent()
        self.give_back_reserve()
        self.active = None
        self.closing.append(segment)

    def give_back_reserve(self) -> None:
        """Frees the disk that the active segment reserved (preallocate) and did not use."""
        if self.active is not None and self.settings.preallocate:
            self.active.file.reserve(0)

    def keep_only(self, segments: tuple[Segment, ...], active: Segment | None) -> None:
        """Forgets all other segments, after a cut or a recovery."""
        self.all, self.active = segments, active
        self.closing = [segment for segment in self.closing if segment in segments and segment is not active]

    def replace(self, old: tuple[Segment, ...], new: Iterable[Segment]) -> None:
        """Puts new segments in the place of neighbouring old ones."""
        first = self.all.index(old[0])
        self.all = (*self.all[:first], *new, *self.all[first + len(old) :])
        self.closing = [segment for segment in self.closing if segment not in old]

    def drop_oldest(self) -> None:
        """Takes the oldest segment out of the log. Its files are renamed, and removed file.delete.delay.ms later."""
        oldest = self.all[0]
        self.all = self.all[1:]
        self.closing = [segment for segment in self.closing if segment is not oldest]
        self.loaded_indexes.forget(oldest)
        self.deletions.append(Deletion(None, oldest.file, oldest.mark_deleted()))

    def take_due_deletions(self, boot_ms: int) -> list[str]:
        """The files that were dropped file.delete.delay.ms ago. Their readers fail from now on. The caller removes the
        files, in any thread: freeing a large file takes long.

        A segment that is replaced twice gets the same last name: its new file may be removed early, and a reader of it
        asks again.
        """
        waiting, due = [], []
        for due_ms, file, paths in self.deletions:
            if due_ms is None:
                due_ms = boot_ms + self.settings.file_delete_delay_ms
            if boot_ms < due_ms:
                waiting.append(Deletion(due_ms, file, paths))
                continue
            file.close()
            file.path += ".gone"
            due += paths
        self.deletions = waiting
        return due

    def files(self) -> Iterator[File]:
        """The log files, with those that wait for their removal."""
        yield from (segment.file for segment in self.all)
        yield from (deletion.file for deletion in self.deletions)

    def lose_files(self) -> None:
        """Makes reads of a condemned log fail: its directory is about to be removed, and the name may be used again."""
        for file in self.files():
            file.path += ".gone"
            # A sender may have opened the file again for the rest of an answer.
            file.close()

    def close(self) -> None:
        """Closes the handles."""
        self.give_back_reserve()
        for segment in self.all:
            segment.file.close()
            self.loaded_indexes.forget(segment)
