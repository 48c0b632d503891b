"""The partitions that have a directory in a data directory, and the topic ids in those directories.

At a start the directories are looked through once: names are straightened, notes of directories that were put back are
taken, and the removal of condemned directories is finished. Afterwards this object knows which partitions are on disk.
"""

from collections.abc import Iterable
from contextlib import suppress

from cordwood.log.directory.condemned import empty_logs
from cordwood.log.directory.misnamed import straighten_names
from cordwood.log.directory.offsets.kept_offsets import KeptOffsets
from cordwood.log.directory.set_aside import read_note, remove_note, set_aside
from cordwood.log.directory.strays import Fate, Known, Verdict, doubt, judge, read_topic_id
from cordwood.log.directory.topic_descriptions import TopicDescriptions
from cordwood.log.opening.partition_files import holds_a_log
from cordwood.log.upkeep.retention import condemned_part
from cordwood.model.errors import DiskFull
from cordwood.model.identifiers import TopicId, TopicPartition
from cordwood.segments.damaged import DamagedCheckpoint
from cordwood.segments.end_witness import EndKey, end_key
from cordwood.segments.filesystem import Filesystem
from cordwood.segments.offset_checkpoint import RECOVERY_POINT_FILE
from cordwood.segments.partition_metadata import FILE_NAME as METADATA_FILE
from cordwood.segments.partition_metadata import decode_partition_metadata
from cordwood.segments.set_aside import LONGEST_PART, NOTE_FILE, Note, set_aside_part


class PartitionsOnDisk:
    def __init__(
        self, filesystem: Filesystem, path: str, offsets: KeptOffsets, descriptions: TopicDescriptions
    ) -> None:
        self._filesystem = filesystem
        self._path = path
        self._offsets = offsets
        self._descriptions = descriptions
        self._known: set[TopicPartition] = set()
        self._without_id: set[TopicPartition] = set()
        """Partitions whose topic id on disk is missing or damaged."""
        self.put_back: set[TopicPartition] = set()
        """Partitions that were set aside once: their logs are recovered, even after a clean stop."""
        self.set_aside_directories: list[str] = []
        """Directories of partitions that the metadata did not know: renamed and kept."""

    def __contains__(self, partition: TopicPartition) -> bool:
        return partition in self._known

    @property
    def partitions(self) -> list[TopicPartition]:
        return sorted(self._known)

    def directory(self, partition: TopicPartition) -> str:
        return f"{self._path}/{partition}"

    def add(self, partition: TopicPartition) -> None:
        """Notes that a log has made the partition's directory."""
        self._known.add(partition)

    def forget(self, partition: TopicPartition) -> bool:
        """Forgets a partition, with its offsets. True if a file may have offsets of it."""
        self._known.discard(partition)
        self._descriptions.forget(partition)
        return self._offsets.forget(partition)

    def topic_ids(self, among: Iterable[TopicPartition] | None = None) -> dict[TopicPartition, TopicId | None]:
        """The topic id in the directory of each partition, or of those `among`; None for a missing or damaged id."""
        wanted = self._known if among is None else self._known.intersection(among)
        return {partition: self._descriptions.read(partition) for partition in sorted(wanted)}

    def missing(self, wanted: Iterable[TopicPartition]) -> list[TopicPartition]:
        """The partitions that had records and have no directory any more."""
        return [
            partition
            for partition in wanted
            if partition not in self._known
            and self._offsets.recovery_points.get(partition, 0) > self._offsets.log_starts.get(partition, 0)
        ]

    def take_missing_id(self, partition: TopicPartition) -> bool:
        """True if the partition's topic id has to be written anew. False from the second call on."""
        missing = partition in self._without_id
        self._without_id.discard(partition)
        return missing

    # Directories that the metadata does not know

    def strays(
        self, known: Known, *, clean: bool, among: Iterable[TopicPartition] | None = None
    ) -> dict[TopicPartition, Verdict]:
        """Verdicts on the directories that are not simply opened. Directories that are left alone are no partitions.

        `clean`: the last broker on this directory stopped cleanly. Only the partitions `among` are judged; None: all.
        """
        found: dict[TopicPartition, Verdict] = {}
        points = self._offsets.recovery_points
        for partition, topic_id in self.topic_ids(among).items():
            verdict = judge(self._filesystem, self.directory(partition), partition, topic_id, known)
            if verdict.fate is Fate.REPAIRED:
                lost, had_records = self.missing(sorted(points)), partition in points
                if why := doubt(partition, lost, clean=clean, had_records=had_records):
                    verdict = Verdict(Fate.SET_ASIDE, f"{verdict.reason}, and {why}")
            if verdict.fate is Fate.LEFT_ALONE:
                self._known.discard(partition)
            elif verdict.fate is Fate.REPAIRED:
                self._without_id.add(partition)
            if verdict.fate is not Fate.OPENED:
                found[partition] = verdict
        return found

    def set_aside(self, partition: TopicPartition, reason: str, wall_ms: int) -> str:
        """Renames a partition's directory, waiting for the disk; returns the new path.

        The partition's offsets are in the note before any checkpoint forgets them, and are forgotten before the
        partition's name is free: a later topic of the same name must not get them.
        """
        directory = self.directory(partition)
        self._known.discard(partition)
        note = Note(
            partition,
            read_topic_id(self._filesystem, directory),
            reason,
            wall_ms,
            self._offsets.recovery_points.get(partition),
            self._offsets.log_starts.get(partition),
            self._offsets.clean_offsets.get(partition),
        )
        path = set_aside(self._filesystem, directory, note, before_moving=lambda: self._forget_durably(partition))
        self.set_aside_directories.append(path)
        return path

    def _forget_durably(self, partition: TopicPartition) -> None:
        self.forget(partition)
        self._offsets.begin_save()()

    # The look around at a start

    def look_around(self) -> list[str]:
        """Finds the partitions, before any log is open. Returns faults, and their consequences."""
        problems = straighten_names(self._filesystem, self._path, self._filesystem.list_directories(self._path))
        names = self._filesystem.list_directories(self._path)
        self._known |= _partitions_of(names)
        self._note_lost_recovery_points()
        self.set_aside_directories = [f"{self._path}/{name}" for name in names if set_aside_part(name) is not None]
        self._take_notes()
        self._finish_removals(names)
        return problems

    def _note_lost_recovery_points(self) -> None:
        """Sets recovery points to 0 if their file was lost: an empty file exists before the first log, so a missing
        file counts as lost.

        Logs that are not opened before the next start must still know of the loss then.
        """
        if not self._offsets.recovery_points_lost:
            return
        if self._known:
            self._offsets.recovery_points = dict.fromkeys(self._known, 0)
        else:
            with suppress(DiskFull):
                self._offsets.begin_save((RECOVERY_POINT_FILE,))()

    def _take_notes(self) -> None:
        """Takes back the offsets of partitions that were set aside and put back; see log/directory/set_aside.py."""
        taken = []
        for partition in self._known:
            directory = self.directory(partition)
            if not self._filesystem.exists(f"{directory}/{NOTE_FILE}"):
                continue
            self.put_back.add(partition)
            taken.append(directory)
            note = read_note(self._filesystem, directory)
            if note is None:
                continue
            # A crash may have come when some checkpoints had forgotten the partition. Offsets that they still have are
            # current.
            for offsets, offset in (
                (self._offsets.recovery_points, note.recovery_point),
                (self._offsets.log_starts, note.log_start_offset),
                (self._offsets.clean_offsets, note.cleaned_to),
            ):
                if offset is not None and not offsets.get(partition):
                    offsets[partition] = offset
        if taken:
            with suppress(DiskFull):
                self._offsets.begin_save()()
                for directory in taken:
                    remove_note(self._filesystem, directory)

    def ends_of_condemned(self) -> list[EndKey]:
        """The keys of the durable ends of partitions whose directories were condemned, and that have no other one here.
        A killed process may not have forgotten these ends durably: a partition that had moved to a directory that is
        lost would count as lost here when it comes back."""
        names = self._filesystem.list_directories(self._path)
        here = {name[:LONGEST_PART] for name in names if _partition_of(name) is not None}
        keys = []
        for name in names:
            part = condemned_part(name)
            if part is None or part in here:
                continue
            with suppress(FileNotFoundError, DamagedCheckpoint):
                metadata = decode_partition_metadata(
                    self._filesystem.read_bytes(f"{self._path}/{name}/{METADATA_FILE}")
                )
                if metadata.partition is not None:
                    keys.append(end_key(metadata.topic_id, metadata.partition))
        return keys

    def _finish_removals(self, names: Iterable[str]) -> None:
        """Frees the disk of condemned directories; removes them once the checkpoints have forgotten the partitions."""
        condemned = {
            f"{self._path}/{name}": part
            for name in names
            if (part := condemned_part(name)) is not None and holds_a_log(self._filesystem, f"{self._path}/{name}")
        }
        parts = set(condemned.values())
        gone = self._offsets.partitions() - self._known
        forgotten = [each for each in gone if str(each)[:LONGEST_PART] in parts and self.forget(each)]
        if not condemned:
            return
        # A killed process may have renamed the directories: emptied logs must not come back under the names of
        # partitions.
        self._filesystem.sync_directory(self._path)
        for directory in condemned:
            # On a full disk this frees the room that saving the offsets needs, as in `Removal`.
            empty_logs(self._filesystem, directory)
        # On a disk that is still full the directories stay for the next start, and this start does not fail.
        save = self._offsets.begin_save()
        self._offsets.forgotten_with_last_save(forgotten)
        with suppress(DiskFull):
            save()
            for directory in condemned:
                self._filesystem.remove_tree(directory)


def partitions_in(filesystem: Filesystem, path: str) -> set[TopicPartition]:
    """The partitions whose names the directories in a data directory have."""
    return _partitions_of(filesystem.list_directories(path))


def _partitions_of(names: Iterable[str]) -> set[TopicPartition]:
    return {partition for name in names if (partition := _partition_of(name)) is not None}


def _partition_of(directory_name: str) -> TopicPartition | None:
    try:
        return TopicPartition.parse(directory_name)
    except ValueError:
        return None
