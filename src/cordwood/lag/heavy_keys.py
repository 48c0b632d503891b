"""The keys that come most often, in bounded memory: the Space-Saving sketch of Metwally, Agrawal and El Abbadi.

The sketch holds a fixed number of keys. A new key takes the place of the rarest key and inherits its count: a count is
never too low, and too high by at most the inherited count. A key with more than 1/capacity of all occurrences is always
held.
"""

from typing import NamedTuple


class HeavyKey(NamedTuple):
    key: bytes
    occurrences: int
    """The count of the key: never too low."""
    excess: int
    """By how much the count may be too high."""


class HeavyKeys:
    def __init__(self, capacity: int) -> None:
        assert capacity > 0
        self._capacity = capacity
        self._counts: dict[bytes, int] = {}
        self._excess: dict[bytes, int] = {}
        self.total = 0

    def __len__(self) -> int:
        return len(self._counts)

    def add(self, key: bytes) -> None:
        self.total += 1
        counts = self._counts
        if key in counts:
            counts[key] += 1
        elif len(counts) < self._capacity:
            counts[key] = 1
        else:
            # The lowest count, then the lowest key, so that a replay gives the same result.
            rarest = min(counts, key=lambda each: (counts[each], each))
            inherited = counts.pop(rarest)
            self._excess.pop(rarest, None)
            counts[key] = inherited + 1
            self._excess[key] = inherited

    def halve(self) -> None:
        """Lets the past fade: halves all counts."""
        self.total //= 2
        self._counts = {key: count // 2 for key, count in self._counts.items() if count > 1}
        self._excess = {key: excess // 2 for key, excess in self._excess.items() if key in self._counts}

    def top(self, number: int) -> list[HeavyKey]:
        ordered = sorted(self._counts.items(), key=lambda item: (-item[1], item[0]))
        return [HeavyKey(key, count, self._excess.get(key, 0)) for key, count in ordered[:number]]
