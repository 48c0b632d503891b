"""A broker's data directory: the logs of its partitions, and the files that all logs share.

Files, with Kafka's names and formats: `meta.properties` (the owner of the data), `.lock`, the clean-shutdown marker,
and the checkpoints of recovery points, log starts and compaction. The marker exists only while no broker runs on the
directory and all logs are checkpointed: then logs open without reading their content.
"""

import threading
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Protocol, runtime_checkable

from cordwood.log.directory.checkpoints import DirectoryCheckpoints
from cordwood.log.directory.condemned import Condemned, Removal
from cordwood.log.directory.dropped_notes import dropped_before
from cordwood.log.directory.identity import PROPERTIES_FILE, Identity, claim_directory, read_owner
from cordwood.log.directory.offsets.cuts import Cuts
from cordwood.log.directory.offsets.durable_ends import DurableEnds, do_nothing
from cordwood.log.directory.offsets.kept_offsets import KeptOffsets
from cordwood.log.directory.partitions_on_disk import PartitionsOnDisk
from cordwood.log.directory.setting_aside import SettingAside
from cordwood.log.directory.strays import Known, Verdict, read_topic_id
from cordwood.log.directory.topic_descriptions import TopicDescriptions
from cordwood.log.files.durable_directories import make_directory_durably
from cordwood.log.log import Log
from cordwood.log.parts.loaded_indexes import SHARED, LoadedIndexes
from cordwood.log.upkeep.flushing import FlushTicket
from cordwood.model.errors import StorageFailure
from cordwood.model.identifiers import TopicId, TopicPartition
from cordwood.model.moment import Moment
from cordwood.model.settings.topic_settings import TopicSettings
from cordwood.segments.dropped_deletions import Dropped
from cordwood.segments.end_witness import end_key
from cordwood.segments.filesystem import Filesystem, remove_if_there
from cordwood.segments.offset_checkpoint import CLEANER_FILE
from cordwood.segments.partition_metadata import TopicDescription
from cordwood.segments.set_aside import Note

LOCK_FILE = ".lock"
CLEAN_SHUTDOWN_FILE = ".kafka_cleanshutdown"

WORKERS = "workers"
"""The directory of the homes of workers (broker/workers): no directory of a partition can have this name."""
MOVES_FILE = "partition-moves"
"""The moves of partitions between homes that are under way."""

CLEAN_SHUTDOWN = b'{"version":0,"brokerEpoch":-1}'
"""The content of the mark of a clean stop."""


class Lock(Protocol):
    def release(self) -> None: ...


@runtime_checkable
class Lockable(Protocol):
    """A filesystem that several processes can use."""

    def lock(self, path: str) -> Lock: ...


class DataDirectory:
    """Opens and checkpoints logs. Callers `take` and `open` first, `close` last; one object per directory."""

    def __init__(
        self,
        filesystem: Filesystem,
        path: str,
        *,
        loaded_indexes: LoadedIndexes = SHARED,
        sync_together: bool = True,
        witness_ends: bool = True,
    ) -> None:
        """`sync_together`: False if a sync of the whole filesystem cannot be trusted. `witness_ends`: False if the
        files end with the process."""
        self.filesystem = filesystem
        self.path = path
        self.clean = False
        """True if the last broker on this directory stopped cleanly."""
        self.problems: list[str] = []
        """Faults of the directory's own files, and their consequences."""
        self._loaded_indexes = loaded_indexes
        self.sync_together = sync_together
        self._logs: dict[TopicPartition, Log] = {}
        self._offsets = KeptOffsets(filesystem, path)
        self._ends = DurableEnds(filesystem, path, kept=witness_ends)
        self._descriptions = TopicDescriptions(filesystem, path)
        self.on_disk = PartitionsOnDisk(filesystem, path, self._offsets, self._descriptions)
        self._condemned = Condemned(filesystem, path)
        self.cuts = Cuts(self._logs, self._offsets, self._ends, self._condemned.renaming)
        self.checkpoints = DirectoryCheckpoints(
            filesystem,
            path,
            self._logs,
            self._offsets,
            self._ends,
            self._descriptions,
            self.on_disk,
            self.cuts,
            sync_together=sync_together,
        )
        self._setting_aside = SettingAside(
            filesystem, self._logs, self._offsets, self.on_disk, self._condemned, self.cuts, self.checkpoints
        )
        self._forgetting: Callable[[], None] | None = None
        """Makes durable that ends were forgotten; None: that is durable."""
        self._given_up: list[Log] = []
        """Logs that were open when the disk failed."""
        self._lock: Lock | None = None
        self._taken = False
        """True if the directory was made durably, and is locked where that is possible."""

    # Life

    def take(self) -> None:
        """Makes the directory if need be, and locks it. Raises StorageFailure if another process has the lock."""
        make_directory_durably(self.filesystem, self.path, begun=self.filesystem.exists(self._file(PROPERTIES_FILE)))
        if self._lock is None and isinstance(self.filesystem, Lockable):
            self._lock = self.filesystem.lock(self._file(LOCK_FILE))
        self._taken = True

    def take_once(self) -> None:
        """Calls `take`, unless the directory is taken already."""
        if not self._taken:
            self.take()

    def lock_if_begun(self) -> None:
        """Locks the directory if it has a lock file, and changes nothing: a start that is refused leaves a missing
        directory missing. Raises StorageFailure if another process has the lock."""
        path = self._file(LOCK_FILE)
        if self._lock is None and isinstance(self.filesystem, Lockable) and self.filesystem.exists(path):
            self._lock = self.filesystem.lock(path)

    def stopped_cleanly(self) -> bool:
        """True if the directory has the mark of a clean stop, which `open` removes."""
        return self.filesystem.exists(self._file(CLEAN_SHUTDOWN_FILE))

    @property
    def arranged_for_workers(self) -> bool:
        """True if the partitions are in the homes of workers, or on their way there or back."""
        return any(self.filesystem.exists(self._file(name)) for name in (WORKERS, MOVES_FILE))

    def open(self, identity: Identity | None = None) -> None:
        """Reads the directory's files, with the lock held. Raises StorageFailure if another node owns the data."""
        filesystem = self.filesystem
        self.take_once()
        try:
            if identity is not None:
                claim_directory(filesystem, self.path, identity)
            self.problems += self._offsets.read()
            witness_problems = self._ends.read()
            if gone := self.on_disk.ends_of_condemned():
                self._ends.begin_forget(gone)()
            self.problems += self.on_disk.look_around()
            self.clean = filesystem.exists(self._file(CLEAN_SHUTDOWN_FILE)) and not self.problems
            self.problems += witness_problems
            # From now on a stop is unclean until `close` writes the marker.
            remove_if_there(filesystem, self._file(CLEAN_SHUTDOWN_FILE))
            filesystem.sync_directory(self.path)
        except BaseException:
            self.release()
            raise

    def close(self, *, clean: bool = True, release: bool = True) -> None:
        """Checkpoints and closes all logs, waiting for the disk. Without `clean` only handles are closed.

        Without `release` the lock is kept.
        """
        # From now on no move of a log reaches its switch.
        self.checkpoints.held.clear()
        try:
            try:
                if clean:
                    self.checkpoint()
            finally:
                for log in (*self._logs.values(), *self._given_up):
                    log.close()
                self._ends.close()
            if (
                clean
                and not self.cuts.to_recover
                and all(log.offsets.recovery_point == log.offsets.end for log in self._logs.values())
            ):
                self.filesystem.replace(self._file(CLEAN_SHUTDOWN_FILE), CLEAN_SHUTDOWN)
            self._logs.clear()
        finally:
            if release:
                self.release()

    def give_up(self) -> None:
        """Forgets all logs, since the disk failed. Threads may still use their files, which `close` closes."""
        self._given_up = list(self._logs.values())
        for log in self._given_up:
            log.offsets.truncations += 1
        self._logs.clear()

    def release(self) -> None:
        """Releases the lock of a directory that was not opened, or not completely; else callers use `close`."""
        if self._lock is not None:
            self._lock.release()
            self._lock = None
        self._taken = False

    # Partitions

    def strays(self, known: Known) -> dict[TopicPartition, Verdict]:
        """Verdicts on the directories that are not simply opened. Directories that are left alone are no partitions."""
        return self.on_disk.strays(known, clean=self.clean)

    def describe_topic(self, topic_id: TopicId, description: TopicDescription | None) -> None:
        """Sets the description of a topic for its directories, in the loop. None: the topic was deleted."""
        self._descriptions.describe(topic_id, description)

    def set_aside(self, partition: TopicPartition, reason: str, wall_ms: int) -> str:
        """Renames a partition's directory, waiting for the disk; returns the new path."""
        assert partition not in self._logs, f"{partition} is in use"
        topic_id = read_topic_id(self.filesystem, self.on_disk.directory(partition))
        if topic_id is not None:
            self.forget_ends([(topic_id, partition)])()
        return self.on_disk.set_aside(partition, reason, wall_ms)

    def forget_ends(self, gone: Iterable[tuple[TopicId, TopicPartition]]) -> Callable[[], None]:
        """Forgets, in the loop, the durable ends of these partitions, which leave this directory: a partition that
        comes back later with the same topic id begins anew. The returned function makes that durable, in any thread,
        and has to be called before the partitions' names are free. That function raises StorageFailure, also for a
        witness that could not be emptied in the loop."""
        keys = [end_key(topic_id, each.partition) for topic_id, each in gone]
        try:
            sync = self._ends.begin_forget(keys)
        except StorageFailure as failure:
            # The loop goes on without this disk. A new log here tries again first.
            self._forgetting = lambda: self._ends.begin_forget(keys)()
            return partial(_fail, failure)
        self._forgetting = sync

        def synced() -> None:
            sync()
            if self._forgetting is sync:
                self._forgetting = None

        return synced

    def forget_ends_but(self, hosted: Iterable[tuple[TopicId, TopicPartition]]) -> None:
        """Forgets, waiting for the disk, the durable ends of all partitions but these: they left this directory."""
        gone = self._ends.unknown_to({end_key(topic_id, each.partition) for topic_id, each in hosted})
        if gone:
            self._ends.begin_forget(gone)()

    def has_log(self, partition: TopicPartition) -> bool:
        """True if the partition has a directory or an open log."""
        return partition in self._logs or partition in self.on_disk

    @property
    def partitions_with_offsets(self) -> set[TopicPartition]:
        """Partitions with saved offsets. A log without segments has nothing else."""
        return self._offsets.partitions()

    def has_witnessed(self, topic_id: TopicId | None, partition: TopicPartition) -> bool:
        """True if the witness knows a log that is not open yet: it was durable up to some end, or had begun."""
        return bool(self._ends.of(topic_id, partition)) or self._ends.first_file(topic_id, partition) is not None

    def lacks(self, topic_id: TopicId, partition: TopicPartition) -> bool:
        """True if a log that is not open yet had records here, and has no directory any more."""
        return bool(self.on_disk.missing([partition])) or (
            partition not in self.on_disk and self.has_witnessed(topic_id, partition)
        )

    def log(self, partition: TopicPartition) -> Log | None:
        return self._logs.get(partition)

    @property
    def logs(self) -> list[Log]:
        return list(self._logs.values())

    def open_log(
        self, partition: TopicPartition, topic_id: TopicId | None, settings: TopicSettings, now: Moment
    ) -> Log:
        """The partition's log, recovered if need be; the same object until the partition is deleted."""
        log = self._logs.get(partition)
        if log is not None:
            opened_as = log.directory.topic_id
            if None not in (topic_id, opened_as) and topic_id != opened_as:
                raise StorageFailure(f"{partition} is open as the log of topic id {opened_as}, not of {topic_id}")
            return log
        if partition not in self.on_disk:
            self._make_way(partition, now.wall_ms)
        self._be_forgotten(partition)
        recovery_point = self._offsets.recovery_points.get(partition)
        log = Log.open(
            self.filesystem,
            self.on_disk.directory(partition),
            partition,
            settings,
            recovery_point=recovery_point or 0,
            clean=self.clean and partition not in self.on_disk.put_back and partition not in self.cuts.to_recover,
            now=now,
            log_start_offset=self._offsets.log_starts.get(partition, 0),
            topic_id=topic_id,
            ever_compacted=partition in self._offsets.clean_offsets,
            recovery_point_lost=recovery_point == 0,
            loaded_indexes=self._loaded_indexes,
            describe_topic=self._descriptions.of,
            witnessed_end_offset=self._ends.of(topic_id, partition),
            start_is_known=self._knows_start(partition),
            first_file=self._ends.first_file(topic_id, partition),
        )
        self._descriptions.opened(partition, topic_id)
        if log.segments.dropped is None and (cleaned_to := self._offsets.clean_offsets.get(partition, 0)):
            log.segments.dropped = dropped_before(self.identity(), log, cleaned_to)
        if log.reports.damage and log.offsets.witnessed_end > log.offsets.saved_recovery_point:
            self._ends.make_durable()
        self._take_over(log)
        # Work that began before a cut that failed must not take this log for the one that it knew.
        log.offsets.truncations += self.cuts.to_recover.pop(partition, 0)
        self._logs[partition] = log
        if self.on_disk.take_missing_id(partition):
            log.directory.restore_topic_id()
        return log

    def _take_over(self, log: Log) -> None:
        """Listens to an open log's beginning, cuts and removals from now on."""
        partition, topic_id, offsets = log.partition, log.directory.topic_id, log.offsets
        self._ends.opened(topic_id, partition, offsets)
        self._offsets.log_opened(partition, offsets)
        offsets.on_cut = partial(self.cuts.about_to_be_cut, partition)
        offsets.on_removal = partial(self._about_to_be_removed, log)
        offsets.on_begin = lambda first_file: self._ends.began(topic_id, partition, first_file, offsets)
        if log.segments:
            offsets.on_begin(log.segments[0].base_offset)

    def _knows_start(self, partition: TopicPartition) -> bool:
        """True if the log had its present files from the saved log start on when this directory was last in use."""
        put_back = partition in self.on_disk.put_back or partition in self.cuts.to_recover
        return not put_back and self._offsets.saved_log_start(partition) is not None

    def _about_to_be_removed(self, log: Log) -> Callable[[], None]:
        saved, segments = self._offsets.saved_log_start(log.partition), log.segments
        if saved is not None and segments.all and saved >= segments[0].base_offset:
            return do_nothing
        return self.checkpoints.save_offsets([log])

    def _make_way(self, partition: TopicPartition, wall_ms: int) -> None:
        """Moves away an old directory that has the name of a new partition."""
        if partition in self._condemned:
            self._condemned.make_way(partition)
        elif self.filesystem.list(self.on_disk.directory(partition)):
            self.set_aside(partition, "a new partition has its name", wall_ms)

    def free_name(self, partition: TopicPartition) -> None:
        """Waits, before a new log in another data directory, until a crash can no longer bring back a deleted partition
        of the same name here."""
        self._condemned.free_name(partition)
        self._be_forgotten(partition)

    def condemn_logs(self, partitions: Iterable[TopicPartition], before: Callable[[], None] = do_nothing) -> Removal:
        """Forgets deleted partitions, in the loop. The removal of their files runs in any thread, after `before`.

        The names can be used again at once: a new log waits until the old directory is renamed. After a crash before
        that, the tombstone of the topic deletes the directory. After a later crash, the condemned directory makes the
        next start forget its offsets, so that a new topic of the same name begins at 0. If a new log exists already,
        the offsets are its own: the new log was opened only after the old offsets were gone.
        """
        doomed = []
        forgotten = []
        for partition in partitions:
            log = self._logs.pop(partition, None)
            if log is not None:
                self._ends.deleted(log.directory.topic_id, partition)
                log.let_go()
            self.cuts.to_recover.pop(partition, None)
            if self.on_disk.forget(partition):
                forgotten.append(partition)
            doomed.append(self._condemned.add(partition, log))
        save = self.checkpoints.save_offsets(())
        self._offsets.forgotten_with_last_save(forgotten)
        return Removal(self._condemned, doomed, save, before)

    def set_logs_aside(
        self,
        partitions: Sequence[tuple[TopicId, TopicPartition]],
        reason: str,
        wall_ms: int,
        *,
        until_in_sync: bool = False,
    ) -> Removal:
        """See `SettingAside.begin`."""
        forget = self.forget_ends(partitions)
        return self._setting_aside.begin(partitions, reason, wall_ms, forget, until_in_sync=until_in_sync)

    def delete_log(self, partition: TopicPartition) -> None:
        """Removes a deleted partition, waiting for the disk."""
        self.condemn_logs([partition]).run()

    def _be_forgotten(self, partition: TopicPartition) -> None:
        """Waits, before a new log, until no file has offsets of a deleted partition of the same name.

        After a crash the new log would get the old offsets.
        """
        if self._forgetting is not None:
            self._forgetting()
            self._forgetting = None
        if self._offsets.in_a_file_still(partition):
            self.filesystem.sync_directory(self.path)
            self.checkpoints.save_offsets(())()

    # Offsets that are kept for all logs together

    def clean_offset(self, partition: TopicPartition) -> int:
        """The end of the compacted part of the partition's log."""
        return self._offsets.clean_offsets.get(partition, 0)

    def durable_recovery_point(self, partition: TopicPartition) -> int:
        """The saved recovery point. After a crash a gap below it counts as compaction, a gap above it as damage."""
        log = self._logs.get(partition)
        return self._offsets.recovery_points.get(partition, 0) if log is None else log.offsets.saved_recovery_point

    def note_dropped(self, log: Log, dropped: Dropped) -> Callable[[], None]:
        """Returns a function that writes a log's note of dropped deletions, in any thread. Nothing is written if the
        log was deleted or set aside meanwhile: the directory of its name may be a new log's."""

        def write() -> None:
            with self.renaming:
                if self._logs.get(log.partition) is log:
                    log.segments.save_dropped(dropped)

        return write

    def expect_compaction(self, partition: TopicPartition) -> Callable[[], None]:
        """Notes, in the loop, that this log is going to have gaps. The returned function writes the note, in any
        thread.

        The note has to be on disk before the first compacted segment: if the topic's policy is changed, a later start
        would take the gaps for damage.
        """
        self._offsets.clean_offsets.setdefault(partition, 0)
        if (log := self._logs.get(partition)) is not None:
            log.segments.ever_compacted = True
        return self._offsets.begin_save((CLEANER_FILE,))

    def set_clean_offset(self, partition: TopicPartition, offset: int) -> None:
        self._offsets.clean_offsets[partition] = offset

    def checkpoint(self) -> None:
        """Checkpoints all logs, waiting for the disk."""
        checkpoint = self.checkpoints.begin()
        checkpoint.write()
        self.checkpoints.finish(checkpoint)()

    def note_durable(self, tickets: Sequence[FlushTicket]) -> None:
        """Notes the ends of synced tickets, before any client is told of them: a start must notice if they are lost."""
        self._ends.note(tickets)

    def saved_high_watermark(self, partition: TopicPartition) -> tuple[int, int]:
        """The last high watermark that was noted for a replicated partition; 0: none."""
        kept = self._offsets
        return kept.high_watermarks.get(partition, 0), kept.watermark_epochs.get(partition, -1)

    # Moves to another directory (moving.py)

    def hold(self, log: Log) -> None:
        """Takes no checkpoint of this log until `unhold`: the files beside the log are being copied."""
        self.checkpoints.held.add(log)

    def unhold(self, log: Log) -> None:
        self.checkpoints.held.discard(log)

    def note_for_move(self, log: Log, wall_ms: int) -> Note:
        """The facts that the copy of a held log needs to be opened."""
        offsets, partition = log.offsets, log.partition
        return Note(
            partition,
            log.directory.topic_id,
            f"it moves here from {self.path}",
            wall_ms,
            offsets.saved_recovery_point or None,
            offsets.start,
            self._offsets.clean_offsets.get(partition),
        )

    def hand_over(self, log: Log) -> Callable[[], None]:
        """Forgets a log whose directory here is renamed, in the loop. The returned function makes that durable, in any
        thread, before the files are removed."""
        partition, topic_id = log.partition, log.directory.topic_id
        assert self._logs.get(partition) is log, f"{partition} is not here"
        del self._logs[partition]
        self.checkpoints.held.discard(log)
        sync_ends = do_nothing if topic_id is None else self.forget_ends([(topic_id, partition)])
        forgotten = [partition] if self.on_disk.forget(partition) else []
        save = self.checkpoints.save_offsets(())
        self._offsets.forgotten_with_last_save(forgotten)

        def forget() -> None:
            sync_ends()
            save()

        return forget

    def make_way(self, partition: TopicPartition, wall_ms: int) -> None:
        """Moves away the directory of a partition whose log is elsewhere, and waits until its offsets are gone."""
        assert partition not in self._logs, f"{partition} is in use"
        self._make_way(partition, wall_ms)
        self._be_forgotten(partition)

    def take_in(self, log: Log, note: Note, high_watermark: int) -> Callable[[], None]:
        """Takes a log that was moved here, in the loop. The returned function saves its offsets, in any thread: until
        then they are in the note in its directory."""
        partition = log.partition
        assert partition not in self._logs, f"{partition} is here already"
        self._logs[partition] = log
        self.on_disk.add(partition)
        self._take_over(log)
        self._descriptions.read(partition)
        if note.cleaned_to is not None:
            self._offsets.clean_offsets[partition] = note.cleaned_to
        if high_watermark:
            self._offsets.high_watermarks[partition] = high_watermark
        return self.checkpoints.save_offsets([log])

    def describe(self, topic_id: TopicId) -> TopicDescription | None:
        """The description of a topic, for the first append to a new log of the topic."""
        return self._descriptions.of(topic_id)

    @property
    def renaming(self) -> threading.Lock:
        """Held while the directory of a partition gets another name."""
        return self._condemned.renaming

    def free_bytes(self) -> tuple[int, int]:
        """The size of the disk and its free bytes."""
        return self.filesystem.free_bytes()

    def check_present(self) -> None:
        """Raises SyncFailure if the directory was renamed or removed, or its disk unmounted, since it was taken."""
        self.filesystem.check_present(self.path)

    # Files

    def _file(self, name: str) -> str:
        return f"{self.path}/{name}"

    def identity(self) -> Identity | None:
        """The owner of the data. A home that lost its properties takes it from their copy."""
        return read_owner(self.filesystem, self.path)


def _fail(failure: StorageFailure) -> None:
    raise failure
