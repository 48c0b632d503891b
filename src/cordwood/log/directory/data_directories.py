"""The data directories of a broker, as one. Each partition has its log in one of them.

A broker with one directory is the common case: every call goes to that directory. With several, a new partition goes
where the fewest partitions are, and stays there. Each directory has its own lock, checkpoints, witness of durable ends,
condemned and set-aside partitions: the loss of one directory does no harm to the others.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import NamedTuple

from cordwood.log.directory.condemned import Removal
from cordwood.log.directory.data_directory import DataDirectory
from cordwood.log.directory.directory_set import Claim, Place
from cordwood.log.directory.dropped_notes import dropped_next
from cordwood.log.directory.finishing_moves import UnfinishedMoves
from cordwood.log.directory.identity import Identity
from cordwood.log.directory.in_steps import Steps
from cordwood.log.directory.offsets.durable_ends import do_nothing
from cordwood.log.directory.strays import SERVED, Fate, Known, Verdict
from cordwood.log.directory.two_logs import refuse_two_logs, two_logs
from cordwood.log.log import Log
from cordwood.log.upkeep.checkpoint import Checkpoint
from cordwood.log.upkeep.flushing import FlushTicket
from cordwood.model.errors import DiskFull, StorageFailure, SyncFailure
from cordwood.model.identifiers import TopicId, TopicPartition
from cordwood.model.moment import Moment
from cordwood.model.settings.topic_settings import TopicSettings
from cordwood.segments.dropped_deletions import Dropped
from cordwood.segments.partition_metadata import TopicDescription

PROBE_FILE = ".probe"
"""A file that is written, synced and removed, to find out whether a disk works."""


class Stray(NamedTuple):
    """A partition's directory that is not simply opened."""

    directory: DataDirectory
    partition: TopicPartition
    verdict: Verdict


class CheckpointOfAll(NamedTuple):
    """The checkpoints of all directories, under way: `write` runs in any thread."""

    parts: list[tuple[DataDirectory, Checkpoint]]
    failures: dict[DataDirectory, Exception]
    """The directories whose part could not be written. All other parts are finished."""

    def write(self) -> None:
        for directory, checkpoint in self.parts:
            try:
                checkpoint.write()
            except (StorageFailure, FileNotFoundError) as failure:
                self.failures[directory] = failure


def in_all(works: Sequence[Callable[[], None]]) -> None:
    """Does work in several directories, all of it even if some fails. Raises a failed sync, else the first failure."""
    failures: list[StorageFailure] = []
    for work in works:
        try:
            work()
        except StorageFailure as failure:
            failures.append(failure)
    if failures:
        raise next((each for each in failures if isinstance(each, SyncFailure)), failures[0])


def _together(works: list[Callable[[], None]]) -> Callable[[], None]:
    return works[0] if len(works) == 1 else lambda: in_all(works)


class DataDirectories:
    """Opens and checkpoints logs. Callers `take` and `open` first, `close` last."""

    def __init__(self, directories: Sequence[DataDirectory], *, all_present: bool = True) -> None:
        """The first of the directories is the home, which has the broker's own files. `all_present`: False if a
        directory that had partitions is missing."""
        self.directories = tuple(directories)
        self.all_present = all_present
        self.home = directories[0]
        self._only = directories[0] if len(directories) == 1 else None
        self._places: dict[TopicPartition, DataDirectory] = {}
        """The directory of each partition that has files, saved offsets or an open log; empty with one directory."""
        self._counts: Counter[DataDirectory] = Counter()
        self.undone_moves: dict[TopicPartition, DataDirectory] = {}
        """Moves that a crash interrupted: the targets of the partitions."""
        self._by_path = {directory.path: directory for directory in directories}
        self.lost: set[DataDirectory] = set()
        """Directories that failed while the broker ran: nothing in them is used until the next start."""
        self.note_durable: Callable[[Sequence[FlushTicket]], None] = (
            self._note_durable if self._only is None else self._only.note_durable
        )
        """Notes the ends of synced tickets, before any client is told of them."""

    # The home

    @property
    def path(self) -> str:
        return self.home.path

    # Life

    def open(
        self,
        identity: Identity | None = None,
        *,
        new_id: Callable[[], str] = lambda: "",
        known: Known | None = None,
    ) -> None:
        """Reads the directories' files, with the locks held. `new_id` makes ids of new directories; `known` are the
        topics of the metadata. Raises StorageFailure, before anything is changed, if another node owns the data, or if
        two logs could each be that of one partition."""
        try:
            found = Place(self.home.filesystem, self.home.path).identity()
            if self._only is not None and (found is None or not (found.directories or found.home_id)):
                self._only.open(identity)
                return
            for directory in self.directories:
                directory.lock_if_begun()
            places = [Place(each.filesystem, each.path) for each in self.directories]
            claim = None if identity is None else Claim(places, identity, new_id)
            moves = UnfinishedMoves(self.directories, all_present=self.all_present, known=known)
            if known is not None:
                refuse_two_logs(self.directories, known)
            # All refusals are above: from here on files change.
            for directory in self.directories:
                directory.take_once()
            if claim is not None:
                claim.write()
            finished = moves.finish()
            for directory in self.directories:
                directory.open()
            self.home.problems += finished.words
            self.undone_moves = finished.undone
            self._find_places()
        except BaseException:
            self.release()
            raise

    def _find_places(self) -> None:
        if self._only is not None:
            return
        for directory in self.directories:
            for partition in directory.on_disk.partitions:
                self._places.setdefault(partition, directory)
        for directory in self.directories:
            for partition in directory.partitions_with_offsets:
                self._places.setdefault(partition, directory)
        self._counts = Counter(self._places.values())

    def close(self, *, clean: bool = True, release: bool = True) -> None:
        """Checkpoints and closes all logs, waiting for the disks. Without `clean` only handles are closed.

        Without `release` the locks are kept.
        """
        in_all(
            [
                partial(each.close, clean=clean and each not in self.lost, release=release)
                for each in reversed(self.directories)
            ]
        )

    def release(self) -> None:
        """Releases the locks of directories that were not opened, or not completely; else callers use `close`."""
        for directory in reversed(self.directories):
            directory.release()

    def needs_check(self, partition: TopicPartition) -> bool:
        """True if the partition has a log in a directory that was not closed cleanly. An empty directory that was added
        makes no log suspect."""
        directory = self.directory_of(partition)
        return directory is not None and not directory.clean and self.has_log(partition)

    @property
    def problems(self) -> list[str]:
        """Faults of the directories' own files, and their consequences."""
        return [problem for directory in self.directories for problem in directory.problems]

    # Directories that fail

    def lose(self, directory: DataDirectory) -> None:
        """Forgets, in the loop, the logs in a directory whose disk failed. Their partitions cannot be opened."""
        assert directory is not self.home, "without its home the broker stops"
        self.lost.add(directory)
        directory.give_up()

    def is_lost(self, partition: TopicPartition) -> bool:
        """True if the partition is in a directory that failed."""
        return bool(self.lost) and self._places.get(partition) in self.lost

    @property
    def _online(self) -> list[DataDirectory]:
        return [directory for directory in self.directories if directory not in self.lost]

    def probe(self) -> list[tuple[DataDirectory, StorageFailure]]:
        """The directories that are gone, and those, except the home, that cannot be written durably. In any thread. A
        full disk is no failure."""
        failed = self.gone()
        vanished = {directory for directory, _ in failed}
        for directory in self.directories[1:]:
            if directory in self.lost or directory in vanished:
                continue
            path = f"{directory.path}/{PROBE_FILE}"
            try:
                directory.filesystem.replace(path, b"")
                directory.filesystem.remove(path)
            except DiskFull:
                continue
            except (StorageFailure, FileNotFoundError) as failure:
                failed.append((directory, StorageFailure(str(failure))))
        return failed

    def gone(self) -> list[tuple[DataDirectory, StorageFailure]]:
        """The directories that are not at their path any more: renamed, removed, or on a disk that was unmounted."""
        gone: list[tuple[DataDirectory, StorageFailure]] = []
        for directory in self._online:
            try:
                directory.check_present()
            except SyncFailure as failure:
                gone.append((directory, failure))
            except StorageFailure:
                # The answer is unknown. The probe writes there, and finds out.
                continue
        return gone

    # The places of partitions

    def directory_of(self, partition: TopicPartition) -> DataDirectory | None:
        """The directory with the partition's files, saved offsets or open log; None: there is none yet."""
        only = self._only
        if only is not None:
            return only if only.has_log(partition) else None
        return self._places.get(partition)

    def directory_at(self, path: str) -> DataDirectory | None:
        return self._by_path.get(path)

    def prefer(self, partition: TopicPartition, directory: DataDirectory) -> None:
        """Chooses the directory for the log of a partition that has no directory yet."""
        if self._only is None and partition not in self._places:
            self._put(partition, directory)

    def moved(self, partition: TopicPartition, target: DataDirectory) -> None:
        """Notes, in the loop, that a partition is in another directory from now on."""
        self._forget(partition)
        self._put(partition, target)

    def _put(self, partition: TopicPartition, directory: DataDirectory) -> None:
        self._places[partition] = directory
        self._counts[directory] += 1

    def _forget(self, partition: TopicPartition, *, at: DataDirectory | None = None) -> None:
        """Forgets the directory of a partition, if it is `at`."""
        place = self._places.get(partition)
        if place is not None and at in (None, place):
            del self._places[partition]
            self._counts[place] -= 1

    def _at(self, partition: TopicPartition) -> DataDirectory:
        """The directory that answers for a partition: its own, or the home, which does not know it either."""
        return self._only or self._places.get(partition) or self.home

    def _of(self, log: Log) -> DataDirectory:
        return self._only or self._by_path[log.directory.parent]

    def _grouped(self, partitions: Iterable[TopicPartition]) -> dict[DataDirectory, list[TopicPartition]]:
        grouped: dict[DataDirectory, list[TopicPartition]] = {}
        for partition in partitions:
            grouped.setdefault(self._at(partition), []).append(partition)
        return grouped

    # Partitions

    def strays(self, known: Known) -> list[Stray]:
        """The directories that are not simply opened. Raises StorageFailure if two of them are of one partition."""
        strays: list[Stray] = []
        served: dict[TopicPartition, list[DataDirectory]] = {}
        for directory in self.directories:
            verdicts = directory.strays(known)
            strays += [Stray(directory, partition, verdict) for partition, verdict in verdicts.items()]
            for partition in directory.on_disk.partitions if self._only is None else ():
                if partition not in verdicts or verdicts[partition].fate in SERVED:
                    served.setdefault(partition, []).append(directory)
        strays += self._twice(served)
        for stray in strays:
            if stray.verdict.fate not in SERVED:
                self._forget(stray.partition, at=stray.directory)
        for partition, (directory, *_) in served.items():
            self.moved(partition, directory)
        for directory in self.directories if self._only is None else ():
            for partition in directory.partitions_with_offsets:
                if partition in served and directory not in served[partition]:
                    # A later partition of the same name must not get the offsets of one that left.
                    directory.on_disk.forget(partition)
        return strays

    def _twice(self, served: dict[TopicPartition, list[DataDirectory]]) -> Iterator[Stray]:
        """Leaves one directory to each partition, if its other ones are empty. Raises StorageFailure otherwise."""
        for partition, directories in served.items():
            if len(directories) == 1:
                continue
            full = [each for each in directories if each.filesystem.list(each.on_disk.directory(partition))]
            if len(full) > 1:
                raise two_logs(*(each.on_disk.directory(partition) for each in full[:2]))
            (kept,) = full or directories[:1]
            for directory in directories:
                if directory is not kept:
                    yield Stray(directory, partition, Verdict(Fate.EMPTY, f"its log is in {kept.path}"))
            directories[:] = [kept]

    def missing(self, wanted: Iterable[tuple[TopicId, TopicPartition]]) -> list[TopicPartition]:
        """The partitions that had records and have no directory any more."""
        missing = []
        for topic_id, partition in wanted:
            place = self._only or self._places.get(partition)
            if any(each.lacks(topic_id, partition) for each in ((place,) if place else self.directories)):
                missing.append(partition)
        return missing

    def describe_topic(self, topic_id: TopicId, description: TopicDescription | None) -> None:
        """Sets the description of a topic for its directories, in the loop. None: the topic was deleted."""
        for directory in self.directories:
            directory.describe_topic(topic_id, description)

    def forget_ends(self, gone: Iterable[tuple[TopicId, TopicPartition]]) -> Callable[[], None]:
        """Calls `DataDirectory.forget_ends` for the partitions of each directory."""
        grouped: dict[DataDirectory, list[tuple[TopicId, TopicPartition]]] = {}
        for each in gone:
            grouped.setdefault(self._at(each[1]), []).append(each)
        return _together([each.forget_ends(ends) for each, ends in grouped.items() if each not in self.lost])

    def forget_ends_but(self, hosted: Iterable[tuple[TopicId, TopicPartition]]) -> None:
        """Forgets, waiting for the disks, the durable ends of all partitions but these: they left their directory."""
        known = list(hosted)
        for directory in self.directories:
            directory.forget_ends_but(each for each in known if self._places.get(each[1], directory) is directory)

    def has_log(self, partition: TopicPartition) -> bool:
        """True if the partition has a directory or an open log, and its disk has not failed."""
        return self._at(partition).has_log(partition) and not self.is_lost(partition)

    def log(self, partition: TopicPartition) -> Log | None:
        return self._at(partition).log(partition)

    @property
    def logs(self) -> list[Log]:
        return [log for directory in self.directories for log in directory.logs]

    def open_log(
        self, partition: TopicPartition, topic_id: TopicId | None, settings: TopicSettings, now: Moment
    ) -> Log:
        """The partition's log, recovered if need be; the same object until the partition is deleted."""
        directory = self._only or self._places.get(partition)
        if directory is None:
            directory = self._choose(partition, topic_id)
            self._put(partition, directory)
        if directory in self.lost:
            raise StorageFailure(f"{partition} is offline: its data directory {directory.path} failed")
        if self._only is None and not directory.has_log(partition):
            for other in self.directories:
                if other is not directory and other not in self.lost:
                    other.free_name(partition)
        return directory.open_log(partition, topic_id, settings, now)

    def _choose(self, partition: TopicPartition, topic_id: TopicId | None) -> DataDirectory:
        """The directory whose witness knows the log, whose files are lost; else the one with the fewest partitions."""
        for directory in self.directories:
            if directory.has_witnessed(topic_id, partition):
                return directory
        return min(self._online, key=lambda each: self._counts[each])

    def condemn_logs(
        self, partitions: Iterable[TopicPartition], before: Callable[[], None] = do_nothing
    ) -> "RemovalOfAll":
        """Forgets deleted partitions, in the loop. The removal of their files runs in any thread, after `before`."""
        parts = []
        for directory, names in self._grouped(partitions).items():
            parts.append(directory.condemn_logs(names, before))
            for partition in names:
                self._forget(partition)
        return RemovalOfAll(parts)

    def set_logs_aside(
        self,
        partitions: Iterable[tuple[TopicId, TopicPartition]],
        reason: str,
        wall_ms: int,
        *,
        until_in_sync: bool = False,
    ) -> "RemovalOfAll":
        """Calls `DataDirectory.set_logs_aside` for the partitions of each directory."""
        topic_ids = {partition: topic_id for topic_id, partition in partitions}
        parts = []
        for directory, names in self._grouped(topic_ids).items():
            if directory not in self.lost:
                own = [(topic_ids[partition], partition) for partition in names]
                parts.append(directory.set_logs_aside(own, reason, wall_ms, until_in_sync=until_in_sync))
            for partition in names:
                self._forget(partition)
        return RemovalOfAll(parts)

    # Offsets that are kept for all logs together

    def clean_offset(self, partition: TopicPartition) -> int:
        """The end of the compacted part of the partition's log."""
        return self._at(partition).clean_offset(partition)

    def durable_recovery_point(self, partition: TopicPartition) -> int:
        """The saved recovery point. After a crash a gap below it counts as compaction, a gap above it as damage."""
        return self._at(partition).durable_recovery_point(partition)

    def expect_compaction(self, partition: TopicPartition) -> Callable[[], None]:
        """See `DataDirectory.expect_compaction`."""
        return self._at(partition).expect_compaction(partition)

    def dropped_next(self, log: Log, highest: int, wall_ms: int) -> Dropped:
        """See `dropped_notes.dropped_next`."""
        return dropped_next(self._of(log).identity(), log, highest, wall_ms)

    def note_dropped(self, log: Log, dropped: Dropped) -> Callable[[], None]:
        """See `DataDirectory.note_dropped`."""
        return self._of(log).note_dropped(log, dropped)

    def set_clean_offset(self, partition: TopicPartition, offset: int) -> None:
        self._at(partition).set_clean_offset(partition, offset)

    def saved_high_watermark(self, partition: TopicPartition) -> tuple[int, int]:
        """The last high watermark that was noted for a replicated partition, and the leader epoch in which it was
        known; 0: none, -1: unknown."""
        return self._at(partition).saved_high_watermark(partition)

    def keep_high_watermarks(self, high_watermark_of: Callable[[TopicPartition], tuple[int, int] | None]) -> None:
        """Checkpoints the high watermarks that the function returns, with their epochs; None: no watermark is kept."""
        for directory in self.directories:
            directory.checkpoints.high_watermark_of = high_watermark_of

    def begin_checkpoint_in_steps(self) -> Steps[CheckpointOfAll]:
        """Takes the checkpoint of all logs, a few logs in each step. Logs that are deleted meanwhile are left out."""
        parts = []
        for directory in self._online:
            parts.append((directory, (yield from directory.checkpoints.begin_in_steps())))
        return CheckpointOfAll(parts, {})

    def finish_checkpoint_in_steps(
        self, checkpoint: CheckpointOfAll, booked: Callable[[Log], None]
    ) -> Steps[Callable[[], None]]:
        """Moves the recovery points, a few in each step, and calls `booked` for each. Returns the function that writes
        them, in any thread."""
        saves = []
        for directory, part in checkpoint.parts:
            if directory in self.lost or directory in checkpoint.failures:
                continue
            saves.append((yield from directory.checkpoints.finish_in_steps(part, booked)))
        return _together(saves)

    def save_offsets(self, logs: Iterable[Log]) -> Callable[[], None]:
        """Copies the current offsets of these logs, in the loop. The returned function writes them, in any thread."""
        grouped: dict[DataDirectory, list[Log]] = {}
        for log in logs:
            grouped.setdefault(self._of(log), []).append(log)
        return _together([directory.checkpoints.save_offsets(own) for directory, own in grouped.items()])

    def _note_durable(self, tickets: Sequence[FlushTicket]) -> None:
        grouped: dict[DataDirectory, list[FlushTicket]] = {}
        for ticket in tickets:
            grouped.setdefault(self._by_path[ticket.directory.parent], []).append(ticket)
        for directory, own in grouped.items():
            if directory not in self.lost:
                directory.note_durable(own)

    # Cuts

    def begin_cut(self, log: Log, offset: int, *, anew: bool) -> Callable[[], None]:
        """See `Cuts.begin`."""
        return self._of(log).cuts.begin(log, offset, anew=anew)

    def end_cut(self, log: Log) -> bool:
        """See `Cuts.end`."""
        return self._of(log).cuts.end(log)

    # Disks

    def free_bytes_of(self, log: Log) -> int:
        """The free bytes of the disk that has this log. Raises StorageFailure."""
        return self._of(log).free_bytes()[1]

    def free_bytes(self) -> list[tuple[int, int]]:
        """The size of each directory's disk and its free bytes, without disks that failed. Raises StorageFailure."""
        return [directory.free_bytes() for directory in self._online]


class RemovalOfAll:
    """Removes the files of deleted partitions in all directories, or sets them aside, in any thread."""

    def __init__(self, parts: Sequence[Removal]) -> None:
        self._parts = parts

    def run(self) -> None:
        """Waits for the disks. Raises StorageFailure in the end if a directory could not be renamed."""
        in_all([part.run for part in self._parts])

    def free_names(self) -> None:
        """See `Removal.free_names`."""
        in_all([part.free_names for part in self._parts])

    def free_disk(self) -> None:
        """See `Removal.free_disk`."""
        in_all([part.free_disk for part in self._parts])
