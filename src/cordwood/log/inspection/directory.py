"""The contents of a data directory: partitions with their segments, snapshots and checkpoints."""

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TypeVar

from cordwood.log.directory.data_directory import CLEAN_SHUTDOWN_FILE, WORKERS
from cordwood.log.inspection.files import read_whole
from cordwood.model.failure import ExitCode, Failure, near_names
from cordwood.model.identifiers import TopicId, TopicPartition
from cordwood.records.batch import HEADER_SIZE, read_header
from cordwood.segments.checkpoint_witness import believe, witness_path
from cordwood.segments.damaged import DamagedFile
from cordwood.segments.end_witness import FILE_NAMES as END_FILES
from cordwood.segments.end_witness import EndKey, decode_ends, end_key
from cordwood.segments.leader_epochs import FILE_NAME as LEADER_EPOCH_FILE
from cordwood.segments.leader_epochs import LeaderEpochs
from cordwood.segments.names import Stage, Suffix, parse_segment_file, segment_file
from cordwood.segments.offset_checkpoint import CLEANER_FILE, LOG_START_FILE, RECOVERY_POINT_FILE, decode_offsets
from cordwood.segments.offset_index import ENTRY_SIZE as OFFSET_ENTRY_SIZE
from cordwood.segments.partition_metadata import FILE_NAME as PARTITION_METADATA_FILE
from cordwood.segments.partition_metadata import TopicDescription, decode_partition_metadata, topic_id_text
from cordwood.segments.set_aside import NOTE_FILE, decode_note, set_aside_part
from cordwood.segments.time_index import ENTRY_SIZE as TIME_ENTRY_SIZE

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Segment:
    """One segment: its base offset, and the size of its log file."""

    directory: str
    base_offset: int
    size_bytes: int

    def path(self, suffix: Suffix) -> str:
        return segment_file(self.directory, self.base_offset, suffix)

    def size_of(self, suffix: Suffix) -> int | None:
        """The size of one of the segment's files; None if it does not exist."""
        try:
            return os.path.getsize(self.path(suffix))
        except FileNotFoundError:
            return None

    @property
    def index_entries(self) -> int | None:
        """None: there is no index."""
        return _entries(self.size_of(Suffix.INDEX), OFFSET_ENTRY_SIZE)

    @property
    def time_index_entries(self) -> int | None:
        """None: there is no index."""
        return _entries(self.size_of(Suffix.TIME_INDEX), TIME_ENTRY_SIZE)


def _entries(size_bytes: int | None, entry_size: int) -> int | None:
    return None if size_bytes is None else size_bytes // entry_size


@dataclass(slots=True)
class Partition:
    """The directory of one partition. A checkpoint without an entry for the partition is None."""

    partition: TopicPartition
    directory: str
    segments: list[Segment] = field(default_factory=list)
    snapshots: list[int] = field(default_factory=list)
    """The offsets of the snapshots of producer state, ascending."""
    leftovers: list[str] = field(default_factory=list)
    """Files that an interrupted deletion or compaction left: `.deleted`, `.cleaned`, `.swap`."""
    topic_id: TopicId | None = None
    description: TopicDescription | None = None
    """The facts about the topic that the directory names; None if it names none."""
    leader_epochs: LeaderEpochs | None = None
    recovery_point: int | None = None
    log_start_offset: int | None = None
    cleaned_to: int | None = None
    witnessed_end_offset: int | None = None
    """The end up to which the log was fsynced, noted since the last checkpoint."""
    unreadable: list[tuple[str, str]] = field(default_factory=list)
    """Checkpoints that could not be read, each with the reason."""
    set_aside: str | None = None
    """The reason why the broker set the directory aside; None if it did not."""

    @property
    def size_bytes(self) -> int:
        return sum(segment.size_bytes for segment in self.segments)

    @property
    def topic_id_text(self) -> str | None:
        return None if self.topic_id is None else topic_id_text(self.topic_id)

    @property
    def start_offset(self) -> int:
        first = self.segments[0].base_offset if self.segments else 0
        return max(first, self.log_start_offset or 0)

    @property
    def durable_end_offset(self) -> int:
        """The end up to which records are known to have been fsynced. Without any witness the whole log is tail."""
        return max(self.recovery_point or 0, self.witnessed_end_offset or 0)


@dataclass(slots=True)
class DataDirectoryView:
    path: str
    partitions: list[Partition]
    set_aside: list[Partition]
    """Partitions that the metadata did not know: kept, and not served."""
    unreadable: list[tuple[str, str]]
    stopped_cleanly: bool
    """True if the broker was stopped cleanly. If not, its next start checks everything above the recovery points."""


def read_data_directory(path: str) -> DataDirectoryView:
    """The partitions of a data directory, or of one partition's directory. Raises Failure for any other directory."""
    if not os.path.isdir(path):
        raise Failure("NO_SUCH_DIRECTORY", f"there is no directory {path}", "", ExitCode.NOT_FOUND)
    if homes := homes_of_workers(path):
        raise Failure(
            "WORKERS",
            f"workers share {path}: each has a home in it ({', '.join(homes)})",
            "inspect a home; to recover partitions that were set aside, start and stop `cordwood serve` once without "
            "--workers: it takes all partitions back",
        )
    names = sorted(os.listdir(path))
    if any(parse_segment_file(name) is not None for name in names):
        parent, name = os.path.split(os.path.abspath(path))
        if set_aside_part(name) is not None:
            view = _view(parent, [], [name])
            return DataDirectoryView(parent, view.set_aside, [], view.unreadable, view.stopped_cleanly)
        return _view(parent, [name], [])
    found = [name for name in names if _is_partition(os.path.join(path, name))]
    aside = [name for name in names if set_aside_part(name) is not None and os.path.isdir(os.path.join(path, name))]
    if not found and not aside and not any(name == "meta.properties" or name.endswith("checkpoint") for name in names):
        raise Failure(
            "NOT_A_DATA_DIRECTORY",
            f"{path} holds no partitions",
            "give the --data-dir of a broker, or a partition's directory in it",
            ExitCode.NOT_FOUND,
        )
    return _view(path, found, aside)


def named_partition(data: DataDirectoryView, name: str) -> list[Partition]:
    """The partition with this directory's name. Raises Failure if there is none."""
    found = {os.path.basename(read.directory): read for read in data.partitions + data.set_aside}
    if name not in found:
        raise Failure(
            "UNKNOWN_TOPIC_OR_PARTITION",
            f"there is no partition {name!r} in {data.path}",
            near_names(name, found),
            ExitCode.NOT_FOUND,
        )
    return [found[name]]


def homes_of_workers(path: str) -> list[str]:
    """The homes of workers in a data directory that they share; none if a single broker used it."""
    workers = os.path.join(path, WORKERS)
    names = sorted(os.listdir(workers)) if os.path.isdir(workers) else []
    return [os.path.join(workers, name) for name in names if name.isdecimal()]


def _view(path: str, names: list[str], aside: list[str]) -> DataDirectoryView:
    unreadable: list[tuple[str, str]] = []
    checkpoints = {
        name: _offsets(os.path.join(path, name), unreadable)
        for name in (RECOVERY_POINT_FILE, LOG_START_FILE, CLEANER_FILE)
    }
    partitions = []
    for name in names:
        try:
            partition = TopicPartition.parse(name)
        except ValueError:
            raise Failure(
                "NOT_A_DATA_DIRECTORY",
                f"{name} is not the name of a partition's directory",
                "such names are TOPIC-NUMBER",
                ExitCode.NOT_FOUND,
            ) from None
        read = _partition(partition, os.path.join(path, name))
        read.recovery_point = checkpoints[RECOVERY_POINT_FILE].get(partition)
        read.log_start_offset = checkpoints[LOG_START_FILE].get(partition)
        read.cleaned_to = checkpoints[CLEANER_FILE].get(partition)
        partitions.append(read)
    partitions.sort(key=lambda read: read.partition)
    ends = _ends(path)
    clean = os.path.exists(os.path.join(path, CLEAN_SHUTDOWN_FILE))
    set_aside = [_set_aside(os.path.join(path, name)) for name in aside]
    for read in partitions + set_aside:
        if read.topic_id is not None:
            read.witnessed_end_offset = ends.get(end_key(read.topic_id, read.partition.partition))
    return DataDirectoryView(path, partitions, set_aside, unreadable, clean)


def _offsets(path: str, unreadable: list[tuple[str, str]]) -> dict[TopicPartition, int]:
    """The offsets of a checkpoint; of its witness if the checkpoint is damaged."""
    try:
        data, problem = believe(_bytes(path), _bytes(witness_path(path)))
        if problem:
            unreadable.append((path, problem))
        # Apache Kafka leaves checkpoints without entries empty.
        return decode_offsets(data) if data else {}
    except DamagedFile as error:
        unreadable.append((path, str(error)))
        return {}


def _ends(path: str) -> dict[EndKey, int]:
    return decode_ends(_bytes(os.path.join(path, name)) or b"" for name in END_FILES)


def _bytes(path: str) -> bytes | None:
    try:
        return read_whole(path)
    except FileNotFoundError:
        return None


def _is_partition(path: str) -> bool:
    try:
        TopicPartition.parse(os.path.basename(path))
    except ValueError:
        return False
    return os.path.isdir(path)


def _partition(partition: TopicPartition, directory: str) -> Partition:
    read = Partition(partition, directory)
    for name in sorted(os.listdir(directory)):
        parsed = parse_segment_file(name)
        if parsed is None:
            continue
        if parsed.stage is not Stage.LIVE:
            read.leftovers.append(name)
        elif parsed.suffix is Suffix.LOG:
            size = os.path.getsize(os.path.join(directory, name))
            read.segments.append(Segment(directory, parsed.base_offset, size))
        elif parsed.suffix is Suffix.SNAPSHOT:
            read.snapshots.append(parsed.base_offset)
    metadata = _read(os.path.join(directory, PARTITION_METADATA_FILE), decode_partition_metadata, read.unreadable)
    if metadata is not None:
        read.topic_id, read.description = metadata.topic_id, metadata.description
    epochs_path = os.path.join(directory, LEADER_EPOCH_FILE)
    read.leader_epochs = _read(epochs_path, LeaderEpochs.from_bytes, read.unreadable)
    problem = believe(_bytes(epochs_path), _bytes(witness_path(epochs_path))).problem if read.leader_epochs else ""
    if problem:
        read.leader_epochs = None
        read.unreadable.append((epochs_path, problem))
    return read


def _set_aside(directory: str) -> Partition:
    """A directory that was set aside, with the offsets that it had at that time."""
    unreadable: list[tuple[str, str]] = []
    note = _read(os.path.join(directory, NOTE_FILE), decode_note, unreadable)
    if note is not None:
        read = _partition(note.partition, directory)
        read.topic_id = read.topic_id or note.topic_id
        read.recovery_point = note.recovery_point
        read.log_start_offset, read.cleaned_to = note.log_start_offset, note.cleaned_to
        read.set_aside = note.reason
    else:
        part = set_aside_part(os.path.basename(directory)) or ""
        try:
            partition = TopicPartition.parse(part)
        except ValueError:
            partition = TopicPartition(part, 0)
        read = _partition(partition, directory)
        read.set_aside = "unknown: the directory has no note of the reason"
    read.unreadable += unreadable
    return read


def _read(path: str, decode: Callable[[bytes], T], unreadable: list[tuple[str, str]]) -> T | None:
    try:
        data = read_whole(path)
        # Apache Kafka leaves a checkpoint without entries empty.
        return decode(data) if data else None
    except FileNotFoundError:
        return None
    except DamagedFile as error:
        unreadable.append((path, str(error)))
        return None


def last_offsets(partition: Partition) -> Iterator[tuple[Segment, int, int]]:
    """(segment, batches, offset after the last whole batch), read from header to header, without verifying."""
    for segment in partition.segments:
        batches, next_offset = 0, segment.base_offset
        with open(segment.path(Suffix.LOG), "rb") as file:
            position = 0
            while position + HEADER_SIZE <= segment.size_bytes:
                file.seek(position)
                header = read_header(file.read(HEADER_SIZE))
                if header.size < HEADER_SIZE or position + header.size > segment.size_bytes:
                    break
                position += header.size
                next_offset = header.next_offset
                batches += 1
        yield segment, batches, next_offset
