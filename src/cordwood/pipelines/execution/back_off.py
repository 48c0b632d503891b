"""The rule for starting a failed pipeline again, or giving it up, without a clock."""

from dataclasses import dataclass


@dataclass
class BackOff:
    """Waits twice as long after every failure in a row; a finished batch resets the count."""

    first_s: float = 1.0
    longest_s: float = 60.0
    max_failures: int = 8
    failures: int = 0

    def progressed(self) -> None:
        self.failures = 0

    def failed(self) -> float | None:
        """The wait before the next try, in seconds; None if there is no next try."""
        self.failures += 1
        if self.failures > self.max_failures:
            return None
        delay_s = self.first_s * 2.0 ** (self.failures - 1)
        return min(delay_s, self.longest_s)
