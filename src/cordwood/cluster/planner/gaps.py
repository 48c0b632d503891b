"""The gap between two brokers in something that is measured, bytes or traffic, and the exchanges that narrow it.

Measurements vary. Where they decide alone, the next plan takes back what the last one did. So an exchange is judged
twice. A plan is begun for an exchange that narrows the gap even if each measurement is wrong by the share `noise`. A
plan that is begun goes on with every exchange that narrows the gap by the measurements as they are. Whatever is left
is then no reason to begin another plan while the measurements stay within that share.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from typing import Final, Generic, NamedTuple, TypeVar

LEAST_SHARE: Final = 0.05
"""An exchange narrows a gap by at least this share of the mean, on either side: smaller ones cost more than they
bring. Brokers whose gap is less than twice this share of the mean are even."""

Item = TypeVar("Item", bound=Hashable)


class Gap(NamedTuple):
    """What two brokers have, and the least that an exchange has to bring."""

    heavy: float
    light: float
    least: float
    noise: float

    def narrowed(self, given: float, taken: float) -> float:
        """What the exchange brings at least, on either side: the heavy broker gives `given` for `taken`. 0: too
        little."""
        low, high = self._bounds
        brought = min(given * low - taken * high, (self.heavy - given) * low - (self.light - taken) * high)
        return brought if brought >= self.least * high else 0.0

    @property
    def _bounds(self) -> tuple[float, float]:
        """What a measured 1 may be in truth."""
        return 1 / (1 + self.noise), 1 / (1 - self.noise)

    @property
    def is_open(self) -> bool:
        """Whether any exchange could narrow the gap."""
        low, high = self._bounds
        return self.heavy * low - self.light * high >= 2 * self.least * high

    def fitting(self, given: float) -> tuple[float, float]:
        """The least and the most that can be taken for `given`; rounding may let the ends in."""
        low, high = self._bounds
        least = self.least * high
        return self.light - ((self.heavy - given) * low - least) / high, (given * low - least) / high

    def even_at(self, given: float) -> float:
        """What is taken for `given` where the exchange brings both brokers the same."""
        low, high = self._bounds
        return (given * low - (self.heavy - given) * low + self.light * high) / (2 * high)

    def rises(self, given: float) -> bool:
        """Whether an exchange that brings the light broker less than the heavy one brings more for what it moves, the
        more is taken."""
        low, high = self._bounds
        return given * high >= (self.heavy - given) * low - self.light * high


class Exchange(NamedTuple, Generic[Item]):
    given: Item
    taken: Item | None
    """None: the heavy broker gives, and takes nothing."""


def best_exchange(
    gap: Gap,
    giving: Sequence[tuple[float, Item]],
    taking: Sequence[tuple[float, Item]],
    is_legal: Callable[[Item, Item | None], bool],
) -> Exchange[Item] | None:
    """The legal exchange that brings the most for what it moves; None: no legal exchange brings enough.

    `giving` has the heavy broker's items and `taking` the light one's, both sorted by what they weigh.
    """
    best: tuple[tuple[float, float], Exchange[Item]] | None = None
    for given, item in reversed(giving):
        if given < gap.least:
            break
        for run in _counterparts(gap, given, taking):
            for taken, other in run:
                brought = gap.narrowed(given, taken)
                rank = brought / (given + taken), brought
                if not brought:
                    continue
                if best is not None and rank <= best[0]:
                    break
                if is_legal(item, other):
                    best = rank, Exchange(item, other)
                    break
    return None if best is None else best[1]


def _counterparts(
    gap: Gap, given: float, taking: Sequence[tuple[float, Item]]
) -> Iterator[Iterable[tuple[float, Item | None]]]:
    """What can be taken for `given`, in runs: within a run, each brings no more for what it moves than the one before.

    The heavier an item, the less the heavy broker loses, and the more the light one does. Below the weight at which
    both are equal the light broker's side decides, and what an exchange brings for what it moves either rises with the
    weight or falls with it. Above that weight it falls.
    """
    yield [(0.0, None)]
    least, most = gap.fitting(given)
    start = max(0, bisect_left(taking, least, key=_weight) - 1)
    end = min(len(taking), bisect_right(taking, most, key=_weight) + 1)
    middle = min(max(start, bisect_left(taking, gap.even_at(given), key=_weight)), end)
    below = range(middle - 1, start - 1, -1) if gap.rises(given) else range(start, middle)
    yield (taking[index] for index in below)
    yield (taking[index] for index in range(middle, end))


def _weight(pair: tuple[float, object]) -> float:
    return pair[0]
