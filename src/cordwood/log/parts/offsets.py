"""The offsets of one partition's log: its start, its three ends, and the offsets to which a crash goes back.

Three ends are distinct: `end` (appended), `durable_end` (fsynced), `recovery_point` (fsynced and checkpointed: below it
nothing is ever cut). Any module may read them; only the modules of this folder change them.
"""

from collections.abc import Callable


class LogOffsets:
    __slots__ = (
        "durable_end",
        "end",
        "end_in_doubt",
        "on_begin",
        "on_cut",
        "on_removal",
        "recovery_point",
        "recovery_point_lost",
        "saved_recovery_point",
        "saved_start",
        "start",
        "start_in_doubt",
        "truncations",
        "witnessed_end",
    )

    def __init__(
        self, start: int, recovery_point: int, *, recovery_point_lost: bool = False, witnessed_end: int = 0
    ) -> None:
        self.start = start
        self.saved_start = start
        """The start on disk, which a crash does not take back. Follows `start`. Set in any thread."""
        self.end = self.durable_end = self.recovery_point = recovery_point
        self.saved_recovery_point = recovery_point
        """The recovery point on disk, to which a crash goes back. Follows `recovery_point`. Set in any thread."""
        self.recovery_point_lost = recovery_point_lost
        """True if the log had a higher recovery point that is unknown now."""
        self.witnessed_end = witnessed_end
        """The end up to which the log was fsynced when it was last in use (segments/end_witness.py); 0: unknown. The
        files beside the log may be older: only the recovery point speaks for them."""
        self.end_in_doubt = False
        """True if records are missing at the log's end, so that the former end is unknown. No replica may follow this
        log until it has followed another one, or no other replica can have these records."""
        self.start_in_doubt = False
        """True if nothing durable confirms that the log starts at `start`: its first files may be missing. Replicas may
        have the records before it, so such a start is neither saved nor told to them."""
        self.truncations = 0
        """The number of cuts of the log: a cut voids the tickets that were taken before."""
        self.on_begin: Callable[[int], None] = _nobody_hears
        """Called in the loop with the base offset of the log's first file, before a batch is in it."""
        self.on_cut: Callable[[int], None] | None = None
        """Called before a cut, with the lower recovery point; must make it durable, and forget the witnessed end,
        before it returns."""
        self.on_removal: Callable[[], Callable[[], None]] = _no_start_to_save
        """Called in the loop before the files of dropped segments are removed. The returned function makes the log's
        start durable, in any thread: a start that finds fewer files than the saved start says takes them for lost."""

    @property
    def told_start(self) -> int:
        """The start that followers take over: they delete their records before it."""
        return min(self.saved_start, self.start) if self.start_in_doubt else self.start

    def move_start(self, offset: int) -> None:
        """Moves the start to this offset: earlier records were deleted, or were never here."""
        self.start = offset
        self.start_in_doubt = False

    def let_go(self) -> None:
        """Drops the listeners: the log is deleted."""
        self.on_begin, self.on_cut, self.on_removal = _nobody_hears, None, _no_start_to_save

    def begin_at(self, offset: int) -> None:
        """Makes this the start and all ends of a log without batches. The saved recovery point follows later."""
        self.start = self.end = self.durable_end = self.recovery_point = offset
        self.end_in_doubt = self.start_in_doubt = False

    def lower_recovery_point(self, offset: int) -> None:
        """Lowers the recovery point, durably, before anything above it is cut."""
        self.recovery_point = min(self.recovery_point, offset)
        if self.on_cut is not None:
            self.on_cut(self.recovery_point)

    def end_at(self, offset: int) -> None:
        """Moves the end back to this offset."""
        self.end = offset
        self.durable_end = min(self.durable_end, offset)


def _nobody_hears(base_offset: int) -> None:
    """The listener of a log outside of a data directory."""


def _no_start_to_save() -> Callable[[], None]:
    return _nothing_to_save


def _nothing_to_save() -> None:
    """The saving of a log outside of a data directory: the caller keeps its start."""
