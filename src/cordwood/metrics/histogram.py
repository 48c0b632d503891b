"""Counts durations by size: one integer increment for each duration."""

from bisect import bisect_left
from typing import Final

BOUNDS_S: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)


class Histogram:
    __slots__ = ("counts", "sum_s")

    def __init__(self) -> None:
        self.counts = [0] * (len(BOUNDS_S) + 1)
        """Counts by bucket, not cumulated; the last bucket is for durations above all bounds."""
        self.sum_s = 0.0

    def observe(self, duration_s: float) -> None:
        self.counts[bisect_left(BOUNDS_S, duration_s)] += 1
        self.sum_s += duration_s

    def copy(self) -> "Histogram":
        copied = Histogram()
        copied.counts, copied.sum_s = list(self.counts), self.sum_s
        return copied
