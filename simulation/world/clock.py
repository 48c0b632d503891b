"""Virtual time: a wall clock that can be set, and a boot clock that cannot."""

from cordwood.model.moment import Moment

START_MS = 1_700_000_000_000


class Clock:
    """A wall clock and a boot clock. Time passes only by `advance`."""

    def __init__(self) -> None:
        self.wall_ms = START_MS
        self.boot_ms = 0
        self.stands_still = False
        """True if a clock that follows another stands still while time passes: its machine is frozen."""
        self._followers: list[Clock] = []

    def follower(self) -> "Clock":
        """A separate clock, for which the same time passes unless it stands still."""
        clock = Clock()
        self._followers.append(clock)
        return clock

    def advance(self, by_ms: int) -> None:
        assert by_ms >= 0
        self.wall_ms += by_ms
        self.boot_ms += by_ms
        for clock in self._followers:
            if not clock.stands_still:
                clock.advance(by_ms)

    def jump(self, by_ms: int) -> None:
        """Sets the wall clock."""
        self.wall_ms += by_ms

    def monotonic_s(self) -> float:
        return self.boot_ms / 1000

    def now(self) -> Moment:
        return Moment(self.boot_ms, self.wall_ms)
