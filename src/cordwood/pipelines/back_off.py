"""When a failed pipeline is started again, and when it is given up: a rule without a clock."""

from dataclasses import dataclass


@dataclass
class BackOff:
    """Waits twice as long after every failure in a row; a batch that was done begins the count again."""

    first_s: float = 1.0
    longest_s: float = 60.0
    max_failures: int = 8
    failures: int = 0

    def progressed(self) -> None:
        self.failures = 0

    def failed(self) -> float | None:
        """How long to wait before the next try; None if there is none."""
        self.failures += 1
        if self.failures > self.max_failures:
            return None
        delay_s = self.first_s * 2.0 ** (self.failures - 1)
        return min(delay_s, self.longest_s)
