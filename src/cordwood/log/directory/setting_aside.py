"""Sets open logs aside: partitions that went on elsewhere without records that only this broker may have.

A partition is forgotten in the loop. A thread makes its last records and a note of its offsets durable, and renames its
directory: `cordwood recover` shows it.
"""

from collections.abc import Callable, Iterable, MutableMapping
from functools import partial

from cordwood.log.directory.checkpoints import DirectoryCheckpoints
from cordwood.log.directory.condemned import Condemned, Removal
from cordwood.log.directory.offsets.cuts import Cuts
from cordwood.log.directory.offsets.kept_offsets import KeptOffsets
from cordwood.log.directory.partitions_on_disk import PartitionsOnDisk
from cordwood.log.directory.set_aside import move_aside, write_note
from cordwood.log.log import Log
from cordwood.model.identifiers import TopicId, TopicPartition
from cordwood.segments.filesystem import Filesystem
from cordwood.segments.set_aside import Note


class SettingAside:
    def __init__(
        self,
        filesystem: Filesystem,
        logs: MutableMapping[TopicPartition, Log],
        offsets: KeptOffsets,
        on_disk: PartitionsOnDisk,
        condemned: Condemned,
        cuts: Cuts,
        checkpoints: DirectoryCheckpoints,
    ) -> None:
        """`logs` are the open logs of the directory."""
        self._filesystem = filesystem
        self._logs = logs
        self._offsets = offsets
        self._on_disk = on_disk
        self._condemned = condemned
        self._cuts = cuts
        self._checkpoints = checkpoints

    def begin(
        self,
        partitions: Iterable[tuple[TopicId, TopicPartition]],
        reason: str,
        wall_ms: int,
        forget_ends: Callable[[], None],
        *,
        until_in_sync: bool = False,
    ) -> Removal:
        """Forgets partitions whose records no other broker may have, in the loop. Their directories are renamed in any
        thread, and keep all files. `forget_ends` makes durable that their ends are forgotten. `until_in_sync`: the
        partitions are filled anew here.

        The names can be used again at once: a new log waits until the old directory is renamed. After a crash before
        that, the next start sets the directory aside.
        """
        before = [forget_ends]
        moved, forgotten = [], []
        for topic_id, partition in partitions:
            log = self._logs.pop(partition, None)
            half_cut = self._cuts.to_recover.pop(partition, None) is not None
            if log is not None or half_cut or partition in self._on_disk:
                note = self._note(partition, topic_id, log, reason, wall_ms)._replace(until_in_sync=until_in_sync)
                self._offsets.note_before_saving(partial(self._write_note, note))
                if log is not None and (flush := log.begin_flush()) is not None:
                    before.append(flush.sync)
                moved.append((partition, log))
            if self._on_disk.forget(partition):
                forgotten.append(partition)
        save = self._checkpoints.save_offsets(())
        self._offsets.forgotten_with_last_save(forgotten)
        doomed = [self._condemned.add(each, log, partial(self._move_aside, each, save)) for each, log in moved]

        def make_durable() -> None:
            for each in before:
                each()

        return Removal(self._condemned, doomed, save, make_durable)

    def _note(
        self, partition: TopicPartition, topic_id: TopicId | None, log: Log | None, reason: str, wall_ms: int
    ) -> Note:
        kept = self._offsets
        return Note(
            partition,
            topic_id,
            reason,
            wall_ms,
            kept.recovery_points.get(partition),
            kept.log_starts.get(partition) if log is None else log.offsets.start,
            kept.clean_offsets.get(partition),
        )

    def _write_note(self, note: Note) -> None:
        directory = self._on_disk.directory(note.partition)
        if self._filesystem.exists(directory):
            write_note(self._filesystem, directory, note)

    def _move_aside(self, partition: TopicPartition, save_offsets: Callable[[], None]) -> str | None:
        """Renames the directory, waiting for the disk: the note is in it, and the checkpoints have no offsets of it."""
        save_offsets()
        directory = self._on_disk.directory(partition)
        if not self._filesystem.exists(directory):
            return None
        path = move_aside(self._filesystem, directory)
        self._on_disk.set_aside_directories.append(path)
        return path
