"""Directories of deleted partitions, from the deletion until their disk is free; and of partitions that are set aside,
until their names are free.

A deletion in the loop only notes the partitions: thousands of renames would hold the loop, on a busy or full disk for
seconds. A thread renames the directories. If a new partition needs one of the names earlier, the loop renames that one
directory itself.
"""

import threading
from collections.abc import Callable, Iterable

from cordwood.log.log import Log
from cordwood.log.upkeep.retention import condemn_directory
from cordwood.model.errors import DiskFull, StorageFailure
from cordwood.model.identifiers import TopicPartition
from cordwood.segments.filesystem import Filesystem
from cordwood.segments.names import Suffix


class Doomed:
    """A deleted partition. `path` is its directory's new name, until the thread that frees the disk takes it.

    A partition that is set aside has `set_aside`, which renames its directory durably, and no `path`: its files stay.
    """

    __slots__ = ("log", "partition", "path", "set_aside")

    def __init__(
        self, partition: TopicPartition, log: Log | None, set_aside: Callable[[], str | None] | None = None
    ) -> None:
        self.partition = partition
        self.log = log
        self.path: str | None = None
        self.set_aside = set_aside


class Condemned:
    def __init__(self, filesystem: Filesystem, path: str) -> None:
        self.filesystem = filesystem
        self.path = path
        self._named: dict[TopicPartition, Doomed] = {}
        """Deleted partitions whose directories still have the names of partitions."""
        self._not_durable: dict[TopicPartition, Doomed] = {}
        """Deleted partitions whose directories may have the names of partitions after a power cut."""
        self._noting = threading.Lock()
        self.renaming = threading.Lock()
        """Held for one rename and the change of the log's paths: readers of the old log never find new files. Held also
        while a thread cuts a log."""

    def __contains__(self, partition: TopicPartition) -> bool:
        """True if a deleted partition's directory has the name of this partition."""
        return partition in self._named

    def add(
        self, partition: TopicPartition, log: Log | None, set_aside: Callable[[], str | None] | None = None
    ) -> Doomed:
        """Notes a partition that is deleted, or that `set_aside` renames, in the loop. Syncs and checkpoints of its log
        are void from now on."""
        if log is not None:
            log.offsets.truncations += 1
        # A directory that has kept its name since an earlier deletion is tried again.
        doomed = self._named.get(partition)
        if doomed is None:
            doomed = self._named[partition] = Doomed(partition, log, set_aside)
        else:
            assert log is None, f"{partition} was opened in a deleted directory"
        with self._noting:
            self._not_durable[partition] = doomed
        return doomed

    def make_way(self, partition: TopicPartition) -> None:
        """Renames the directory that has the name of a new partition. Raises StorageFailure."""
        doomed = self._named.get(partition)
        if doomed is not None:
            self._rename(doomed)

    def free_name(self, partition: TopicPartition) -> None:
        """Makes durable, waiting for the disk, that no deleted partition's directory has this name: the new partition
        may be in another data directory. Raises StorageFailure."""
        if (doomed := self._not_durable.get(partition)) is not None:
            self._rename(doomed)
            self.filesystem.sync_directory(self.path)
            self.synced([doomed])

    def synced(self, doomed: Iterable[Doomed]) -> None:
        """Notes, in any thread, that the new names of these directories are durable, except where there is none."""
        with self._noting:
            for each in doomed:
                if self._not_durable.get(each.partition) is each and self._named.get(each.partition) is not each:
                    del self._not_durable[each.partition]

    def rename_all(self, doomed: list[Doomed]) -> tuple[list[str], list[StorageFailure]]:
        """Renames the directories, in any thread. Returns the new paths, and a failure for each directory that keeps
        its name: until the name is used again, or until the next start."""
        paths, failures = [], []
        for each in doomed:
            try:
                self._rename(each)
            except StorageFailure as failure:
                failures.append(failure)
                continue
            path, each.path = each.path, None
            if path is not None:
                paths.append(path)
        return paths, failures

    def _rename(self, doomed: Doomed) -> None:
        with self.renaming:
            if self._named.get(doomed.partition) is not doomed:
                return
            if doomed.set_aside is not None:
                if doomed.log is not None:
                    doomed.log.condemn(doomed.set_aside)
                else:
                    doomed.set_aside()
            elif doomed.log is not None:
                doomed.path = doomed.log.condemn()
            else:
                doomed.path = condemn_directory(self.filesystem, f"{self.path}/{doomed.partition}")
            del self._named[doomed.partition]


class Removal:
    """Renames the directories of deleted partitions, and frees their disk now or later. Both run in any thread."""

    def __init__(
        self,
        condemned: Condemned,
        doomed: list[Doomed],
        save_offsets: Callable[[], None],
        before: Callable[[], None],
    ) -> None:
        """`save_offsets` writes checkpoints without the partitions. `before` is done before the first rename."""
        self._before = before
        self._condemned = condemned
        self._doomed = doomed
        self._save_offsets = save_offsets
        self._removable: list[str] = []
        """Directories under their new names that no file of offsets mentions any more."""

    def run(self) -> None:
        """Does both halves, waiting for the disk. Raises StorageFailure at the end if a rename failed."""
        try:
            self.free_names()
        finally:
            self.free_disk()

    def free_names(self) -> None:
        """The first half: frees the names, and removes the partitions' offsets from all files. Raises StorageFailure in
        the end if a directory could not be renamed.

        A full disk has no room for a file of offsets: then the logs are emptied at once. The directories stay until the
        offsets are saved: a restart sees by them that these partitions are deleted.
        """
        paths, failures = self.rename()
        try:
            self._save_offsets()
        except DiskFull:
            self._lose_files()
            for path in paths:
                empty_logs(self._condemned.filesystem, path)
            self._save_offsets()
        self._removable = paths
        if failures:
            raise failures[0]

    def rename(self) -> tuple[list[str], list[StorageFailure]]:
        """Renames the directories durably. Returns the new paths, and a failure for each that keeps its name."""
        self._before()
        paths, failures = self._condemned.rename_all(self._doomed)
        if paths:
            self._condemned.filesystem.sync_directory(self._condemned.path)
        self._condemned.synced(self._doomed)
        return paths, failures

    def free_disk(self) -> None:
        """The second half: removes the directories that the first half has renamed. Readers of the logs fail from now
        on. Raises StorageFailure."""
        self._lose_files()
        while self._removable:
            self._condemned.filesystem.remove_tree(self._removable.pop())

    def _lose_files(self) -> None:
        for doomed in self._doomed:
            if doomed.log is not None:
                doomed.log.segments.lose_files()


def empty_logs(filesystem: Filesystem, directory: str) -> None:
    for name in filesystem.list(directory):
        if Suffix.LOG in name:
            file = filesystem.open(f"{directory}/{name}")
            file.truncate(0)
            file.close()
