"""Findings of recovery and readers about a log, in words that an operator can act on: offsets, files, reasons."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace

from cordwood.log.parts.offsets import LogOffsets
from cordwood.log.parts.segment import Segment
from cordwood.model.identifiers import TopicPartition


@dataclass(frozen=True, slots=True)
class Damage:
    """Offsets below the recovery point whose bytes are damaged. Such offsets are never cut, and the rest is served."""

    partition: TopicPartition
    file: str
    position: int
    first_offset: int
    end_offset: int
    reason: str

    def __str__(self) -> str:
        return (
            f"{self.partition}: offsets {self.first_offset} to {self.end_offset - 1} are damaged "
            f"({self.file} at {self.position}: {self.reason})"
        )


@dataclass(frozen=True, slots=True)
class Cut:
    """Bytes above the recovery point that were no valid end of the log and were cut."""

    partition: TopicPartition
    file: str
    position: int
    size_bytes: int
    first_offset: int
    """The new end of the log."""
    claimed_end_offset: int | None
    """The end offset that the cut bytes claimed; None if unreadable."""
    reason: str
    kept_in: str | None = None
    """The file that keeps the cut bytes; None if they held no whole batch."""

    def __str__(self) -> str:
        upper = "the end" if self.claimed_end_offset is None else str(self.claimed_end_offset - 1)
        return (
            f"{self.partition}: cut from offset {self.first_offset} to {upper}, {self.size_bytes} bytes "
            f"({self.file} at {self.position}: {self.reason})"
            + ("" if self.kept_in is None else f"; the cut bytes hold whole batches and are kept in {self.kept_in}")
        )


@dataclass(slots=True)
class RecoveryReport:
    """The report of opening a log. `scanned_bytes` is 0 after a clean stop."""

    clean: bool
    recovery_point: int
    log_end_offset: int = 0
    scanned_bytes: int = 0
    cuts: list[Cut] = field(default_factory=list)
    damage: list[Damage] = field(default_factory=list)
    rebuilt: list[str] = field(default_factory=list)
    """Files beside the log that were missing or wrong, and were rebuilt."""


@dataclass(frozen=True, slots=True)
class DeletedSegment:
    """A segment that retention or a moved log start removed."""

    base_offset: int
    end_offset: int
    size_bytes: int
    reason: str


class LogReports:
    """Known faults of one log: the report of its opening, and damage found then or since."""

    __slots__ = ("_offsets", "_partition", "_recovery", "damage", "on_late_report")

    def __init__(self, partition: TopicPartition, offsets: LogOffsets) -> None:
        self._partition = partition
        self._offsets = offsets
        self._recovery: RecoveryReport | None = None
        self.damage: list[Damage] = []
        """Damage found below the recovery point or the witnessed end, which is never cut."""
        self.on_late_report: Callable[[], None] | None = None
        """Called when the first use after a clean stop found something: `recovery` and `damage` have it."""

    @property
    def recovery(self) -> RecoveryReport:
        """The report of opening the log."""
        if self._recovery is None:
            return RecoveryReport(True, self._offsets.recovery_point, self._offsets.end)
        return self._recovery

    def recovered(self, report: RecoveryReport) -> None:
        """Takes the report of a recovery, with the damage that it found."""
        self.damage.extend(report.damage)
        self._recovery = report

    def damage_at(self, offset: int) -> Damage | None:
        return next((each for each in self.damage if each.first_offset <= offset < each.end_offset), None)

    def note_rebuilt(self, path: str) -> None:
        """Adds a missing or wrong file, which is made again from the log, to the report."""
        report = self.recovery
        report.rebuilt.append(path)
        self._recovery = report

    def note_holes(self, segment: Segment) -> None:
        """Adds the holes of a segment to the damage, without known ones."""
        known = {(damage.file, damage.position) for damage in self.damage}
        self.damage.extend(each for each in self.damage_of(segment) if (each.file, each.position) not in known)

    def damage_of(self, segment: Segment) -> list[Damage]:
        """The holes of a segment as reports."""
        return [
            Damage(self._partition, segment.file.path, hole.position, hole.first_offset, hole.end_offset, hole.reason)
            for hole in segment.holes
        ]

    def forget_holes(self, path: str) -> None:
        """Removes the damage of a log file from the reports: a mended file has taken its place."""
        self.damage = [each for each in self.damage if each.file != path]

    def moved_to(self, directory: str) -> None:
        """Names the files in the log's new directory."""
        self.damage = [replace(each, file=f"{directory}/{each.file.rpartition('/')[2]}") for each in self.damage]

    def tell_late(self) -> None:
        """Reports the findings of the first use after a clean stop, if there are any."""
        report = self.recovery
        if self.on_late_report is not None and (report.rebuilt or not report.clean):
            self.on_late_report()
