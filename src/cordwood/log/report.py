"""Findings of recovery and readers about a log, in words that an operator can act on: offsets, files, reasons."""

from dataclasses import dataclass, field

from cordwood.model.identifiers import TopicPartition


@dataclass(frozen=True, slots=True)
class Damage:
    """Offsets below the recovery point whose bytes are damaged. They are never cut, and the rest is served."""

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
    """Bytes above the recovery point that were no valid end of the log, and were cut."""

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
