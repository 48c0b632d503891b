"""The gap between two brokers in a measured quantity, bytes or traffic, and the exchanges that narrow it.

Measurements vary. If they alone decided, the next plan would undo the last one. So an exchange is judged twice. A plan
is begun for an exchange that narrows the gap even if each measurement is wrong by the share `noise`. A plan that is
begun goes on with every exchange that narrows the gap by the bare measurements. The remaining gap is then no reason to
begin another plan while the measurements stay within that share.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from typing import Final, Generic, NamedTuple, TypeVar

LEAST_SHARE: Final = 0.05
"""An exchange narrows a gap by at least this share of the mean, on either side: a smaller exchange costs more than it
gains. Brokers whose gap is less than twice this share of the mean are even."""

Item = TypeVar("Item", bound=Hashable)


class Gap(NamedTuple):
    """The quantities of two brokers, and the least gain of an exchange."""

    heavy: float
    light: float
    least: float
    noise: float

    def narrowed(self, given: float, taken: float) -> float:
        """The least gain of the exchange on either side: the heavy broker gives `given` for `taken`. 0: too little."""
        low, high = self._bounds
        brought = min(given * low - taken * high, (self.heavy - given) * low - (self.light - taken) * high)
        return brought if brought >= self.least * high else 0.0

    @property
    def _bounds(self) -> tuple[float, float]:
        """The bounds of the true value of a measured 1."""
        return 1 / (1 + self.noise), 1 / (1 - self.noise)

    @property
    def is_open(self) -> bool:
        """True if any exchange could narrow the gap."""
        low, high = self._bounds
        return self.heavy * low - self.light * high >= 2 * self.least * high

    def fitting(self, given: float) -> tuple[float, float]:
        """The least and the most that can be taken for `given`; rounding may let the ends in."""
        low, high = self._bounds
        least = self.least * high
        return self.light - ((self.heavy - given) * low - least) / high, (given * low - least) / high

    def even_at(self, given: float) -> float:
        """The weight that is taken for `given` if the exchange gains both brokers the same."""
        low, high = self._bounds
        return (given * low - (self.heavy - given) * low + self.light * high) / (2 * high)

    def rises(self, given: float) -> bool:
        """True if, below `even_at`, the gain of an exchange in proportion to the weight that it moves rises with the
        weight that is taken."""
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
    """The legal exchange with the highest gain in proportion to the weight that it moves; None: no legal exchange gains
    enough.

    `giving` has the heavy broker's items and `taking` the light one's, both sorted by weight.
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
    """The items that can be taken for `given`, in runs: within a run, the relative gain never rises.

    The heavier an item, the less the heavy broker loses, and the more the light one does. Below the weight at which
    both are equal the light broker's side decides, and the gain in proportion to the weight moved either rises or falls
    with the weight. Above that weight it falls.
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
