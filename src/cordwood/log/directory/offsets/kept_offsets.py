"""Offsets that a data directory keeps for all of its partitions: recovery points, log starts, compacted ends, and the
high watermarks of replicated partitions, with the leader epochs in which these were known.

The offsets change in the loop, and are written to the five checkpoint files in any thread. A late write never replaces
a newer one. Each checkpoint has a witness: a flipped bit in one of the two files changes no offset.
"""

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TypeVar

from cordwood.log.parts.offsets import LogOffsets
from cordwood.model.identifiers import TopicPartition
from cordwood.segments.checkpoint_witness import believe, encode_witness, witness_path
from cordwood.segments.damaged import DamagedCheckpoint
from cordwood.segments.filesystem import Filesystem, read_if_there
from cordwood.segments.offset_checkpoint import (
    CLEANER_FILE,
    HIGH_WATERMARK_FILE,
    LOG_START_FILE,
    RECOVERY_POINT_FILE,
    WATERMARK_EPOCH_FILE,
    decode_offsets,
    decode_watermark_epochs,
    encode_offsets,
    encode_watermark_epochs,
)

FILES = (LOG_START_FILE, CLEANER_FILE, WATERMARK_EPOCH_FILE, HIGH_WATERMARK_FILE, RECOVERY_POINT_FILE)
"""The files, in the order in which they are written."""

_IF_LOST = {
    LOG_START_FILE: "records that were deleted within a segment can be read again",
    CLEANER_FILE: "logs are compacted from their start",
    HIGH_WATERMARK_FILE: "a new leader waits for its followers before it shows records",
    WATERMARK_EPOCH_FILE: "committed records are not defended against a leader that lacks them until it is told again",
    RECOVERY_POINT_FILE: "logs are recovered from their start",
}

Kept = TypeVar("Kept")


class KeptOffsets:
    def __init__(self, filesystem: Filesystem, path: str) -> None:
        self.recovery_points: dict[TopicPartition, int] = {}
        """A recovery point that was never saved is missing here; a lost one is 0."""
        self.log_starts: dict[TopicPartition, int] = {}
        """Logs that never had a segment, and those that Kafka wrote, may be missing."""
        self._starts_on_disk: Mapping[TopicPartition, int] = {}
        """The log starts in the file, if its witness knows the file."""
        self.clean_offsets: dict[TopicPartition, int] = {}
        self.high_watermarks: dict[TopicPartition, int] = {}
        """Only partitions with several replicas have one."""
        self.watermark_epochs: dict[TopicPartition, int] = {}
        """The leader epochs in which the high watermarks were known; an unknown one is missing."""
        self._watermarks_on_disk: Mapping[TopicPartition, int] = {}
        """The high watermarks in their file. Their epochs are written first, with the higher of the two."""
        self._filesystem = filesystem
        self._path = path
        self._open_logs: dict[TopicPartition, LogOffsets] = {}
        self.recovery_points_lost = False
        """True if neither the file of recovery points nor its witness has offsets."""
        self._written: dict[str, bytes] = {}
        """The content of each file, if it is sound."""
        self._saves = 0
        self._saved: dict[str, int] = {}
        """The number of the save that each file has."""
        self._lowered_by: dict[str, int] = {}
        """The number of the last save that a cut waits for, by file."""
        self._forgotten: dict[TopicPartition, int] = {}
        """The number of the first save without the partition, by deleted partition."""
        self._notes: list[Callable[[], None]] = []
        """Functions that write the offsets of forgotten partitions elsewhere, before the next save leaves them out."""
        self._saving = threading.Lock()

    def read(self) -> list[str]:
        """Reads the files; returns their faults and the consequences. No fault costs records."""
        problems: list[str] = []
        recovery_points = self._read(RECOVERY_POINT_FILE, problems, decode_offsets)
        self.recovery_points, self.recovery_points_lost = recovery_points or {}, recovery_points is None
        self.log_starts = self._read(LOG_START_FILE, problems, decode_offsets) or {}
        if LOG_START_FILE in self._written and self._filesystem.exists(witness_path(f"{self._path}/{LOG_START_FILE}")):
            self._starts_on_disk = dict(self.log_starts)
        self.clean_offsets = self._read(CLEANER_FILE, problems, decode_offsets) or {}
        self.high_watermarks = self._read(HIGH_WATERMARK_FILE, problems, decode_offsets) or {}
        noted = self._read(WATERMARK_EPOCH_FILE, problems, decode_watermark_epochs) or {}
        self._watermarks_on_disk = dict(self.high_watermarks)
        # A high watermark in its file is never above the one that was written with its epoch, whenever the process is
        # killed. An earlier release knows only the high watermarks, and moves them without an epoch.
        self.watermark_epochs = {
            partition: epoch
            for partition, (offset, epoch) in noted.items()
            if partition in self.high_watermarks and self.high_watermarks[partition] <= offset
        }
        return problems

    def _read(
        self, name: str, problems: list[str], decode: Callable[[bytes], dict[TopicPartition, Kept]]
    ) -> dict[TopicPartition, Kept] | None:
        """The content of a file; None if neither the file nor its witness has it."""
        path = f"{self._path}/{name}"
        data, problem = believe(
            read_if_there(self._filesystem, path), read_if_there(self._filesystem, witness_path(path))
        )
        offsets = None
        if data is not None:
            try:
                offsets = decode(data)
            except DamagedCheckpoint as error:
                problem = str(error)
        if problem:
            what_now = _IF_LOST[name] if offsets is None else f"its offsets are taken from {witness_path(name)}"
            problems.append(f"{path} is damaged ({problem}): {what_now}")
        elif data is not None:
            self._written[name] = data
        return offsets

    def partitions(self) -> set[TopicPartition]:
        """The partitions with any known offset."""
        return self.recovery_points.keys() | self.log_starts.keys() | self.clean_offsets.keys()

    def log_opened(self, partition: TopicPartition, offsets: LogOffsets) -> None:
        """Notes that the partition has an open log, which is told its saved recovery points and starts from now on."""
        self._forgotten.pop(partition, None)
        self._open_logs[partition] = offsets
        offsets.saved_start = self._starts_on_disk.get(partition, 0)

    def saved_log_start(self, partition: TopicPartition) -> int | None:
        """The log start on disk, as this software wrote it; None: unknown."""
        return self._starts_on_disk.get(partition)

    def note(self, partition: TopicPartition, offsets: LogOffsets, *, has_segments: bool) -> None:
        """Takes the current offsets of an open log."""
        before = self.recovery_points.get(partition)
        if has_segments and (offsets.recovery_point or before is not None):
            self.recovery_points[partition] = offsets.recovery_point
        elif offsets.recovery_point > max(before or 0, offsets.start):
            # All files of the log are lost: only the recovery point keeps its offsets from being given out again.
            self.recovery_points[partition] = offsets.recovery_point
        # A start of 0 is noted, too: by it the next start knows that the file of offset 0 has to be there.
        if offsets.start_in_doubt:
            # A saved start would count as a fact at the next start of the log.
            self.log_starts.pop(partition, None)
        elif has_segments or offsets.start or partition in self.log_starts:
            self.log_starts[partition] = offsets.start

    def begin_cut(self, partition: TopicPartition, recovery_point: int, end: int, start: int = 0) -> Callable[[], None]:
        """Lowers, in the loop, the recovery point of a log that is about to be cut at `end`, and its high watermark.
        `start`: the log start from now on. The returned function writes them, in any thread."""
        lowered = []
        if start > self.log_starts.get(partition, start):
            # A log that begins anew removes its first files.
            self.log_starts[partition] = start
            lowered.append(LOG_START_FILE)
        if self.recovery_points.get(partition, 0) > recovery_point:
            self.recovery_points[partition] = recovery_point
            lowered.append(RECOVERY_POINT_FILE)
        if self.high_watermarks.get(partition, 0) > end:
            self.high_watermarks[partition] = end
            lowered += [WATERMARK_EPOCH_FILE, HIGH_WATERMARK_FILE]
        # An earlier cut may have failed on a full disk: its offsets are lower here than in the file.
        lowered += [name for name, number in self._lowered_by.items() if self._saved.get(name, 0) < number]
        save = self.begin_save(lowered)
        self._lowered_by.update(dict.fromkeys(lowered, self._saves))
        return save

    def begin_save(self, names: Sequence[str] = FILES) -> Callable[[], None]:
        """Copies the offsets, in the loop. The returned function writes them, in any thread."""
        self._saves += 1
        number = self._saves
        current = {
            LOG_START_FILE: self.log_starts,
            CLEANER_FILE: self.clean_offsets,
            HIGH_WATERMARK_FILE: self.high_watermarks,
            RECOVERY_POINT_FILE: self.recovery_points,
        }
        offsets = {name: dict(current[name]) for name in names if name in current}
        known = [
            (partition, self.high_watermarks[partition], epoch)
            for partition, epoch in self.watermark_epochs.items()
            if WATERMARK_EPOCH_FILE in names and epoch >= 0 and partition in self.high_watermarks
        ]
        # Only the logs that are open now: by the time of the write, other logs may have their names.
        open_logs = list(self._open_logs.items())

        def write() -> None:
            with self._saving:
                while self._notes:
                    self._notes[0]()
                    del self._notes[0]
                if WATERMARK_EPOCH_FILE in names and self._saved.get(WATERMARK_EPOCH_FILE, 0) <= number:
                    # A broker without replicated partitions has no such file.
                    if known or WATERMARK_EPOCH_FILE in self._written:
                        on_disk = self._watermarks_on_disk
                        noted = [(name, max(offset, on_disk.get(name, 0)), epoch) for name, offset, epoch in known]
                        self._write(WATERMARK_EPOCH_FILE, encode_watermark_epochs(noted))
                    self._saved[WATERMARK_EPOCH_FILE] = number
                for name, by_partition in offsets.items():
                    # A later save may have been written before.
                    if self._saved.get(name, 0) > number:
                        continue
                    self._write(name, encode_offsets(by_partition))
                    if name == RECOVERY_POINT_FILE:
                        for partition, log in open_logs:
                            log.saved_recovery_point = by_partition.get(partition, 0)
                    elif name == HIGH_WATERMARK_FILE:
                        self._watermarks_on_disk = by_partition
                    elif name == LOG_START_FILE:
                        self._starts_on_disk = by_partition
                        for partition, log in open_logs:
                            log.saved_start = by_partition.get(partition, 0)
                    self._saved[name] = number

        return write

    def _write(self, name: str, data: bytes) -> None:
        if data == self._written.get(name):
            return
        path = f"{self._path}/{name}"
        self._filesystem.replace(witness_path(path), encode_witness(data, self._written.get(name)))
        self._filesystem.replace(path, data)
        self._written[name] = data

    # Deleted partitions

    def forget(self, partition: TopicPartition) -> bool:
        """Forgets a partition's offsets, and its log. True if a file may have some."""
        self._open_logs.pop(partition, None)
        kept = (
            self.recovery_points,
            self.log_starts,
            self.clean_offsets,
            self.high_watermarks,
            self.watermark_epochs,
        )
        return bool([True for offsets in kept if offsets.pop(partition, None) is not None])

    def note_before_saving(self, note: Callable[[], None]) -> None:
        """Makes every save call `note` first, until one call succeeds. `note` keeps the offsets of a partition that is
        forgotten but not deleted. Called in the loop, before the partition is forgotten."""
        self._notes.append(note)

    def forgotten_with_last_save(self, partitions: Iterable[TopicPartition]) -> None:
        """Notes that the last begun save is the first without these partitions."""
        self._forgotten = {name: number for name, number in self._forgotten.items() if not self._is_saved(number)}
        self._forgotten.update(dict.fromkeys(partitions, self._saves))

    def in_a_file_still(self, partition: TopicPartition) -> bool:
        """True if a file may have offsets of a deleted partition of this name."""
        number = self._forgotten.get(partition)
        return number is not None and not self._is_saved(number)

    def _is_saved(self, number: int) -> bool:
        return all(self._saved.get(name, 0) >= number for name in FILES)
