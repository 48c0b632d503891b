"""A moment, on two clocks. The wall clock can be set; the boot clock only goes forward.

Deadlines, timeouts and ages are counted on the boot clock: a change of the wall clock does not stretch or shorten them.
Times that are stored, or compared with a record's timestamp, come from the wall clock. A time on the boot clock means
nothing after a restart of the machine and on another machine, so none is ever stored or sent.

In signatures `now` is a Moment; code that needs one clock alone takes `boot_ms` or `wall_ms`.
"""

from typing import NamedTuple


class Moment(NamedTuple):
    boot_ms: int
    """Milliseconds since the machine started, sleep included."""
    wall_ms: int
    """Milliseconds since 1970."""

    def wall_ms_at(self, boot_ms: int) -> int:
        """The wall clock's time at a time of the boot clock, as if the wall clock had never been set."""
        return self.wall_ms - (self.boot_ms - boot_ms)
