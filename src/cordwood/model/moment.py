"""A moment, on two clocks. The wall clock can be set; the boot clock only goes forward.

Deadlines, timeouts and ages are counted on the boot clock: they stay as long as they were when somebody sets the wall
clock. What is written down, or compared with a record's timestamp, is read off the wall clock. A time on the boot clock
means nothing after a restart of the machine and on another machine, so none is ever stored or sent.

In signatures `now` is a Moment; code that needs one clock alone takes `boot_ms` or `wall_ms`.
"""

from typing import NamedTuple


class Moment(NamedTuple):
    boot_ms: int
    """Milliseconds since the machine started, sleep included."""
    wall_ms: int
    """Milliseconds since 1970."""

    def wall_ms_at(self, boot_ms: int) -> int:
        """What the wall clock showed at a time of the boot clock, if nobody had ever set it."""
        return self.wall_ms - (self.boot_ms - boot_ms)
