"""The pauses between tries that fail: each is twice as long as the one before, up to the longest."""

from typing import NamedTuple


class BackOff(NamedTuple):
    """The caller counts the failures in a row, and begins anew at 0 when a try succeeds."""

    first_ms: int
    longest_ms: int

    def pause_ms(self, failures: int) -> int:
        """The pause after so many failures in a row; 0 after none."""
        # The exponent is bounded: failures may be counted for months.
        return min(self.first_ms << min(failures - 1, 32), self.longest_ms) if failures else 0
