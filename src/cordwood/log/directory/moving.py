"""Moves a partition's log from one data directory to another while it is appended to, cut, compacted and read.

The bytes are copied in pieces, in any thread, into `orders-0.<id>-future` in the target. When little is left, the files
beside the segments are copied as the last checkpoint left them, everything is synced, and a note in the copy says which
offsets belong to it (segments/set_aside.py). The switch, in the loop, copies the few bytes that were appended since,
syncs them, and changes two names: the old directory is condemned, then the copy gets the partition's name. No append
comes in between, so the log that readers and writers hold goes on in the copy.

| a crash comes | a start finds | and (finishing_moves.py) |
| --- | --- | --- |
| before the old directory is condemned | the log, and a copy | removes the copy |
| between the two names | no log, and a copy with a note | gives the copy the partition's name |
| behind both | the log in the target, a condemned directory | removes the condemned directory |

A log that was cut is copied anew. A segment that compaction or a repair replaced is copied anew. A move that fails or
is given up leaves the log where it is.
"""

from collections.abc import Callable, Container, Iterable
from enum import Enum

from cordwood.log.directory.data_directory import DataDirectory
from cordwood.log.log import Log
from cordwood.log.parts.segment import Segment
from cordwood.log.rewriting.replacement import MANIFEST
from cordwood.log.upkeep.relocation import relocate
from cordwood.log.upkeep.retention import condemn_directory
from cordwood.model.errors import DiskFull, StorageFailure, SyncFailure
from cordwood.model.identifiers import TopicPartition
from cordwood.segments.filesystem import File, Filesystem, remove_if_there
from cordwood.segments.names import (
    Stage,
    Suffix,
    future_name,
    future_part,
    parse_segment_file,
    segment_file,
    segment_file_name,
)
from cordwood.segments.set_aside import NOTE_FILE, Note, encode_note

PIECE_BYTES = 4 << 20
"""The most bytes that one piece copies."""

LAST_BYTES = 1 << 20
"""The most bytes that the switch copies in the loop. With so few bytes left to copy a move may settle."""

MOST_DOUBLINGS = 5
"""The number of times that LAST_BYTES is doubled: once for each time that a log grew too fast to switch."""

_FIXED = (Suffix.INDEX, Suffix.TIME_INDEX, Suffix.SNAPSHOT)
"""Files that no longer change once their segment is closed and saved, unless the log is cut."""


class Phase(Enum):
    COPYING = "copying"
    SETTLING = "settling"
    SWITCHED = "switched"
    GIVEN_UP = "given up"


_BEFORE = {
    Phase.COPYING: {Phase.COPYING, Phase.SETTLING},
    Phase.SETTLING: {Phase.COPYING},
    Phase.SWITCHED: {Phase.SETTLING},
    Phase.GIVEN_UP: {Phase.COPYING, Phase.SETTLING},
}
"""The phases that may come before each phase."""


class _Copy:
    """The copy of one segment's log file."""

    __slots__ = ("copied", "file", "of", "synced_to")

    def __init__(self, of: File) -> None:
        self.of = of
        """The file that is copied. A segment that was replaced has another one."""
        self.file: File | None = None
        self.copied = 0
        self.synced_to = 0


class Piece:
    """Some bytes of one segment, to be copied in any thread."""

    def __init__(self, move: "LogMove", segment: Segment, copy: _Copy, end: int, *, closed: bool) -> None:
        self._move = move
        self._segment = segment
        self._copy = copy
        self._end = end
        self._closed = closed
        self.length = end - copy.copied

    def run(self) -> None:
        """Copies the bytes, waiting for both disks. Raises StorageFailure."""
        copy = self._copy
        self._move.remove_note()
        self._move.copy_bytes(self._segment.base_offset, copy, self._end)
        if self._closed:
            self._move.sync_copy(copy)
            assert copy.file is not None
            # A large log that is only copied must not drive often read pages out of the page cache.
            copy.file.forget_cached()
            copy.file.close()
            for suffix in (Suffix.INDEX, Suffix.TIME_INDEX):
                self._move.copy_fixed(segment_file_name(self._segment.base_offset, suffix))


class LogMove:
    """One move. Methods are called in the loop; the functions that they return, and `Piece.run`, in any thread, one at
    a time."""

    def __init__(self, source: DataDirectory, target: DataDirectory, log: Log, path: str) -> None:
        """`path`: the directory of the copy, as `path_of_copy` has it."""
        assert source is not target
        self.source = source
        self.target = target
        self.log = log
        self.partition = log.partition
        self.path = path
        self.phase = Phase.COPYING
        self._copies: dict[int, _Copy] = {}
        self._fixed: set[str] = set()
        """Small files that are copied and no longer change."""
        self._truncations = log.offsets.truncations
        self._note: Note | None = None
        self._settled = 0
        self.decided = False
        """True if the old directory may be condemned: the copy may be the log, and is never removed."""
        if not log.replayed.ready:
            log.replayed.make_ready()

    def _enter(self, phase: Phase) -> None:
        assert self.phase in _BEFORE[phase], f"{self.partition}: {self.phase} cannot become {phase}"
        self.phase = phase

    # Progress

    @property
    def copied_bytes(self) -> int:
        return sum(copy.copied for copy in self._copies.values())

    @property
    def copied_to(self) -> int:
        """The offset up to which the copy has the log, rounded down to a segment's end."""
        offset = self.log.offsets.start
        for place, segment in enumerate(self.log.segments):
            copy = self._copies.get(segment.base_offset)
            if copy is None or copy.of is not segment.file or copy.copied < segment.size:
                break
            offset = self.log.segments.end_of(place)
        return offset

    def _left(self, segment: Segment) -> int:
        copy = self._copies.get(segment.base_offset)
        return segment.size - (0 if copy is None or copy.of is not segment.file else copy.copied)

    @property
    def bytes_left(self) -> int:
        return sum(map(self._left, self.log.segments))

    @property
    def _last_bytes(self) -> int:
        return LAST_BYTES << min(self._settled, MOST_DOUBLINGS)

    # Copying

    def begin(self, directories: list[DataDirectory], under_way: Container[str]) -> Callable[[], None]:
        """Begins the move. The returned function makes the directory of the copy, and removes copies that earlier moves
        of the partition left in these directories. `under_way`: the paths of the copies of other moves."""
        part = future_part(self.path.rpartition("/")[2])

        def work() -> None:
            for each in directories:
                for name in each.filesystem.list_directories(each.path):
                    path = f"{each.path}/{name}"
                    if future_part(name) == part and path not in under_way:
                        remove_future(each.filesystem, path)
            make_future(self.target, self.path)

        return work

    def next_piece(self) -> Piece | None:
        """The next bytes to copy; None if so few are left that the move may settle."""
        assert self.phase is Phase.COPYING
        if self._truncations != self.log.offsets.truncations:
            self._truncations = self.log.offsets.truncations
            self._copies.clear()
            self._fixed.clear()
        if self.bytes_left <= self._last_bytes and len(self.log.segments) - len(self._copies) <= 1:
            return None
        for segment in self.log.segments:
            if not self._left(segment) and segment.base_offset in self._copies:
                continue
            copy = self._copy_of(segment)
            end = min(segment.size, copy.copied + PIECE_BYTES)
            closed = end == segment.size and segment is not self.log.segments.active
            closed = closed and segment not in self.log.segments.closing
            return Piece(self, segment, copy, end, closed=closed)
        return None

    def _copy_of(self, segment: Segment) -> _Copy:
        copy = self._copies.get(segment.base_offset)
        if copy is None or copy.of is not segment.file:
            copy = self._copies[segment.base_offset] = _Copy(segment.file)
        return copy

    def copy_bytes(self, base_offset: int, copy: _Copy, end: int) -> None:
        if copy.file is None:
            copy.file = self.target.filesystem.open(segment_file(self.path, base_offset, Suffix.LOG), create=True)
            copy.file.truncate(0)
            # A segment that was replaced has other indexes.
            self._fixed -= {segment_file_name(base_offset, suffix) for suffix in (Suffix.INDEX, Suffix.TIME_INDEX)}
        while copy.copied < end:
            data = bytearray(min(PIECE_BYTES, end - copy.copied))
            read = copy.of.read_cold(copy.copied, memoryview(data))
            if not read:
                raise StorageFailure(f"{copy.of.path} ends at {copy.copied}, and not at {end}")
            copy.file.append(memoryview(data)[:read])
            copy.copied += read

    def remove_note(self) -> None:
        """Removes the note of an earlier `settle`, which the copy no longer fits."""
        if self._note is not None:
            remove_if_there(self.target.filesystem, f"{self.path}/{NOTE_FILE}")
            self._note = None

    def sync_copy(self, copy: _Copy) -> None:
        if copy.file is not None and copy.synced_to < copy.copied:
            copied = copy.copied
            copy.file.sync()
            copy.synced_to = copied

    def copy_fixed(self, name: str) -> None:
        """Copies, once, a small file that no longer changes."""
        if name not in self._fixed and self._copy_beside(name):
            self._fixed.add(name)

    def _copy_beside(self, name: str) -> bool:
        """Copies a small file, durably but for its name. False if there is none."""
        try:
            data = self.source.filesystem.read_bytes(f"{self.log.directory.path}/{name}")
        except FileNotFoundError:
            return False
        file = self.target.filesystem.open(f"{self.path}/{name}", create=True)
        file.truncate(0)
        file.append(data)
        file.sync()
        file.close()
        return True

    # Settling

    def settle(self, wall_ms: int) -> Callable[[], None]:
        """Copies the rest and the files beside the segments, and makes all of it durable. Called when a checkpoint of
        the log was saved and none is under way; no segment may be replaced until the switch. `switch` follows."""
        self._enter(Phase.SETTLING)
        self._settled += 1
        self.source.hold(self.log)
        # The name in the target may belong to a directory that is about to be removed.
        self.target.make_way(self.partition, wall_ms)
        self._note = self.source.note_for_move(self.log, wall_ms)
        note = encode_note(self._note)
        live = {segment.base_offset for segment in self.log.segments}
        self._copies = {base: copy for base, copy in self._copies.items() if base in live}
        rest = [(segment, self._copy_of(segment), segment.size) for segment in self.log.segments]
        growing = {segment.base_offset for segment in (*self.log.segments.closing, *self.log.segments[-1:])}

        def work() -> None:
            filesystem = self.target.filesystem
            for segment, copy, end in rest:
                self.copy_bytes(segment.base_offset, copy, end)
                self.sync_copy(copy)
            self._copy_all_beside(live, growing)
            filesystem.sync_directory(self.path)
            filesystem.replace(f"{self.path}/{NOTE_FILE}", note)
            # Appends went on meanwhile: the fewer bytes are left, the shorter the switch holds the loop.
            for segment, copy, _ in rest:
                self.copy_bytes(segment.base_offset, copy, segment.size)
                self.sync_copy(copy)

        return work

    def _copy_all_beside(self, live: set[int], growing: set[int]) -> None:
        wanted = {NOTE_FILE}
        for name in self.source.filesystem.list(self.log.directory.path):
            if not _belongs(name):
                continue
            parsed = parse_segment_file(name)
            if parsed is None or parsed.suffix not in (Suffix.LOG, *_FIXED):
                self._copy_beside(name)
            elif parsed.suffix is Suffix.LOG:
                if parsed.base_offset not in live:
                    continue
            elif parsed.base_offset in growing and parsed.suffix is not Suffix.SNAPSHOT:
                self._copy_beside(name)
            else:
                self.copy_fixed(name)
            wanted.add(name)
        for name in self.target.filesystem.list(self.path):
            if name not in wanted:
                self.target.filesystem.remove(f"{self.path}/{name}")
                self._fixed.discard(name)

    def can_go_on(self, failure: Exception) -> bool:
        """True if a piece or `settle` failed only because the log was cut, or a segment was dropped or replaced. Each
        segment excuses one failure: a second one has another cause."""
        if isinstance(failure, SyncFailure | DiskFull) or not isinstance(failure, StorageFailure | FileNotFoundError):
            return False
        live = {segment.file for segment in self.log.segments}
        stale = [base for base, copy in self._copies.items() if copy.of not in live]
        for base in stale:
            del self._copies[base]
        return self._truncations != self.log.offsets.truncations or bool(stale)

    def go_back(self) -> None:
        """Goes on copying: too much has changed for a switch."""
        self._enter(Phase.COPYING)
        self.source.unhold(self.log)

    # The switch

    def switch(self, high_watermark: int) -> Callable[[], str | None] | None:
        """Switches to the copy, in the loop, waiting for both disks. None if too much has changed since `settle`: the
        move goes on copying. The returned function makes both directories forget and remember, in any thread; it
        returns the directory that is to be removed, when no reader can have its files.

        Raises StorageFailure. If `decided` is set then, only a start can tell where the log is.
        """
        assert self.phase is Phase.SETTLING
        if not self._may_switch() or not self._lock():
            self.go_back()
            return None
        try:
            return self._switch(high_watermark)
        finally:
            self.source.renaming.release()
            self.target.renaming.release()

    def _may_switch(self) -> bool:
        log, note = self.log, self._note
        assert note is not None
        segments = log.segments
        if self._truncations != log.offsets.truncations or log.offsets.start != note.log_start_offset:
            return False
        if segments.replacing or self.source.log(self.partition) is not log:
            return False
        live = {segment.base_offset: segment.file for segment in segments}
        if any(live.get(base) is not copy.of for base, copy in self._copies.items()):
            return False
        return self.bytes_left <= self._last_bytes

    def _lock(self) -> bool:
        """Takes the locks of both directories' names without waiting: a thread that cuts a log may hold one."""
        if not self.source.renaming.acquire(blocking=False):
            return False
        if not self.target.renaming.acquire(blocking=False):
            self.source.renaming.release()
            return False
        return True

    def _switch(self, high_watermark: int) -> Callable[[], str | None]:
        log, source, target = self.log, self.source, self.target
        final = target.on_disk.directory(self.partition)
        self._copy_last()
        if target.filesystem.exists(final):
            raise StorageFailure(f"{final} is there already")
        # A directory that is gone fails alone only before the decision.
        for place in (source, target):
            place.filesystem.check_present(place.path)
        self.decided = True
        # Tickets are voided before the rename: a thread that syncs the log does not find its directory afterwards.
        log.offsets.truncations += 1
        condemned = condemn_directory(source.filesystem, log.directory.path)
        source.filesystem.sync_directory(source.path)
        try:
            target.filesystem.rename(self.path, final)
            target.filesystem.sync_directory(target.path)
        except SyncFailure:
            raise
        except (StorageFailure, FileNotFoundError) as failure:
            raise SyncFailure(f"{self.path} could not be named {final}, which the next start does: {failure}") from None
        self._enter(Phase.SWITCHED)
        files = {base: copy.file for base, copy in self._copies.items() if copy.file is not None}
        old = relocate(log.segments, log.offsets, target.filesystem, final, files, target.describe, condemned)
        log.reports.moved_to(final)
        forget = source.hand_over(log)
        note = self._note
        assert note is not None
        remember = target.take_in(log, note, high_watermark)

        def settle_both() -> str | None:
            remember()
            remove_if_there(target.filesystem, f"{final}/{NOTE_FILE}")
            forget()
            for file in old:
                file.close()
            return condemned

        return settle_both

    def _copy_last(self) -> None:
        new_names = False
        for segment in self.log.segments:
            copy = self._copy_of(segment)
            new_names |= copy.file is None
            self.copy_bytes(segment.base_offset, copy, segment.size)
            self.sync_copy(copy)
        if new_names:
            self.target.filesystem.sync_directory(self.path)

    # The end

    def give_up(self) -> Callable[[], None]:
        """Leaves the log where it is. The returned function removes the copy."""
        assert not self.decided, f"{self.path} may be the log"
        self._enter(Phase.GIVEN_UP)
        self.source.unhold(self.log)
        for copy in self._copies.values():
            if copy.file is not None:
                copy.file.close()
        return lambda: remove_future(self.target.filesystem, self.path)


def path_of_copy(target: DataDirectory, partition: TopicPartition, unique_id: str) -> str:
    return f"{target.path}/{future_name(str(partition), unique_id)}"


def make_future(target: DataDirectory, path: str) -> None:
    """Makes the directory of a copy, durably: a start that finds it takes up the move."""
    target.filesystem.make_directory(path)
    target.filesystem.sync_directory(target.path)


def make_futures(wanted: Iterable[tuple[DataDirectory, str]]) -> dict[str, StorageFailure]:
    """Makes the directories of many copies, with one sync of each target. Returns the failures by path."""
    failures: dict[str, StorageFailure] = {}
    made: dict[DataDirectory, list[str]] = {}
    for target, path in wanted:
        try:
            target.filesystem.make_directory(path)
            made.setdefault(target, []).append(path)
        except StorageFailure as failure:
            failures[path] = failure
    for target, paths in made.items():
        try:
            target.filesystem.sync_directory(target.path)
        except StorageFailure as failure:
            failures.update(dict.fromkeys(paths, failure))
    return failures


def remove_futures(gone: Iterable[tuple[DataDirectory, str]]) -> StorageFailure | None:
    """Removes all copies that can be removed. Returns the first failure."""
    failures: list[StorageFailure] = []
    for target, path in gone:
        try:
            remove_future(target.filesystem, path)
        except StorageFailure as failure:
            failures.append(failure)
    return failures[0] if failures else None


def remove_future(filesystem: Filesystem, path: str) -> None:
    """Removes a copy, its note first: a half removed copy must not count as a whole one."""
    if not filesystem.exists(path):
        return
    if filesystem.exists(f"{path}/{NOTE_FILE}"):
        filesystem.remove(f"{path}/{NOTE_FILE}")
        filesystem.sync_directory(path)
    filesystem.remove_tree(path)


def _belongs(name: str) -> bool:
    """True if a file in a partition's directory is part of the log: no leftover, temporary file or note."""
    parsed = parse_segment_file(name)
    if parsed is not None:
        return parsed.stage is Stage.LIVE
    return name not in (NOTE_FILE, MANIFEST) and not name.endswith(".tmp")
