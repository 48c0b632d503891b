"""Virtual time: a wall clock that can be set, and a monotonic clock that cannot."""

START_MS = 1_700_000_000_000


class Clock:
    """A wall clock and a monotonic clock. Time passes only by `advance`."""

    def __init__(self) -> None:
        self.wall_ms = START_MS
        self.monotonic_ms = 0

    def advance(self, by_ms: int) -> None:
        assert by_ms >= 0
        self.wall_ms += by_ms
        self.monotonic_ms += by_ms

    def jump(self, by_ms: int) -> None:
        """Sets the wall clock."""
        self.wall_ms += by_ms

    def monotonic_s(self) -> float:
        return self.monotonic_ms / 1000

    def now_ms(self) -> int:
        return self.wall_ms
