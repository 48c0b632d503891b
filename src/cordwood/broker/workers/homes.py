"""The home of a broker in a shared data directory: its partitions, and the files that it keeps for all of them.

Nothing here runs beside a broker: a process that reads or changes a home holds its lock.
"""

from collections.abc import Iterable
from contextlib import suppress

from cordwood.broker.workers.journal import Move
from cordwood.log.directory.data_directory import CLEAN_SHUTDOWN, CLEAN_SHUTDOWN_FILE, WORKERS
from cordwood.log.directory.findings import FILE_NAME as FINDINGS_FILE
from cordwood.log.directory.findings import Finding, Findings
from cordwood.log.directory.offsets.kept_offsets import KeptOffsets
from cordwood.model.identifiers import TopicId, TopicPartition
from cordwood.segments.damaged import DamagedCheckpoint
from cordwood.segments.end_witness import FILE_NAMES, EndKey, decode_ends, encode_ends, end_key
from cordwood.segments.filesystem import Filesystem, read_if_there, remove_if_there


def home_of(broker_id: int) -> str:
    """The home of a worker, relative to the data directory."""
    return f"{WORKERS}/{broker_id}"


def homes_on_disk(filesystem: Filesystem, root: str) -> dict[int, str]:
    """The existing homes of workers, by broker."""
    names = filesystem.list_directories(f"{root}/{WORKERS}")
    return {int(name): home_of(int(name)) for name in names if name.isdecimal()}


class Home:
    """The files of one home, as they were when it was read."""

    def __init__(self, filesystem: Filesystem, path: str) -> None:
        self._filesystem = filesystem
        self.path = path
        self.offsets = KeptOffsets(filesystem, path)
        self.problems = self.offsets.read()
        if self.offsets.recovery_points_lost:
            # Logs that are recovered from their start, as in PartitionsOnDisk.
            self.offsets.recovery_points = dict.fromkeys(self.partitions(), 0)
        self.clean = filesystem.exists(f"{path}/{CLEAN_SHUTDOWN_FILE}") and not self.problems
        self._end_paths = [f"{path}/{name}" for name in FILE_NAMES]
        found = (read_if_there(filesystem, each) for each in self._end_paths)
        self._ends: dict[EndKey, int] = decode_ends(data for data in found if data is not None)

    def partitions(self) -> list[TopicPartition]:
        """The partitions that have a directory here, by the names of the directories."""
        found = []
        for name in self._filesystem.list_directories(self.path):
            with suppress(ValueError):
                found.append(TopicPartition.parse(name))
        return found

    def move_of(self, partition: TopicPartition, topic_id: TopicId, source: str, destination: str) -> Move:
        """The move of a partition from here, with its offsets."""
        return Move(
            partition,
            str(topic_id),
            source,
            destination,
            self.offsets.recovery_points.get(partition),
            self.offsets.log_starts.get(partition),
            self.offsets.clean_offsets.get(partition),
            self._ends.get(end_key(topic_id, partition.partition)),
        )

    def take_in(self, moves: Iterable[Move]) -> None:
        """Takes the offsets of partitions that come here, durably."""
        for move in moves:
            for offsets, offset in (
                (self.offsets.recovery_points, move.recovery_point),
                (self.offsets.log_starts, move.log_start_offset),
                (self.offsets.clean_offsets, move.cleaned_to),
            ):
                if offset is not None:
                    offsets[move.partition] = offset
            if move.durable_end is not None:
                self._ends[_end_key(move)] = move.durable_end
        self._save()

    def forget(self, moves: Iterable[Move]) -> None:
        """Forgets the offsets of partitions that went elsewhere, durably."""
        for move in moves:
            self.offsets.forget(move.partition)
            self._ends.pop(_end_key(move), None)
        self._save()

    def _save(self) -> None:
        self.offsets.begin_save()()
        first, second = self._end_paths
        self._filesystem.replace(first, encode_ends(self._ends))
        remove_if_there(self._filesystem, second)

    def mark(self, *, clean: bool) -> None:
        """Marks the home as cleanly closed, or not."""
        path = f"{self.path}/{CLEAN_SHUTDOWN_FILE}"
        if clean:
            self._filesystem.replace(path, CLEAN_SHUTDOWN)
        else:
            remove_if_there(self._filesystem, path)
            self._filesystem.sync_directory(self.path)

    # Known damage

    def findings(self) -> Findings:
        """The known damage of the logs here. If the file is lost, the scrub finds the damage again."""
        data = read_if_there(self._filesystem, f"{self.path}/{FINDINGS_FILE}")
        with suppress(DamagedCheckpoint):
            if data is not None:
                return Findings.from_bytes(data)
        return Findings()

    def keep(self, findings: Findings) -> None:
        self._filesystem.replace(f"{self.path}/{FINDINGS_FILE}", findings.to_bytes())


def carry_findings(source: Home, destination: Home, partitions: Iterable[TopicPartition]) -> None:
    """Takes the known damage of partitions from one home to another, durably. Can be repeated."""
    leaving, arriving = source.findings(), destination.findings()
    moved: list[Finding] = [each for partition in partitions for each in leaving.of(partition)]
    if not moved:
        return
    arriving.take(moved)
    destination.keep(arriving)
    leaving.remove(moved)
    source.keep(leaving)


def _end_key(move: Move) -> EndKey:
    return end_key(TopicId(move.topic_id), move.partition.partition)
