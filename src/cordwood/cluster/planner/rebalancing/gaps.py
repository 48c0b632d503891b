"""The gap between two brokers in a measured quantity, bytes or traffic, and the exchanges that narrow it.

Measurements vary. If they alone decided, the next plan would undo the last one. So an exchange is judged twice. A plan
is begun for an exchange that narrows the gap even if each measurement is wrong by the share `noise`. A plan that is
begun goes on with every exchange that narrows the gap by the bare measurements. The remaining gap is then no reason to
begin another plan while the measurements stay within that share.
"""

from bisect import bisect_left
from collections.abc import Callable, Hashable, Sequence
from heapq import merge
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
    trust: float
    """The share of the heavy broker's measurements that counts if those may be too high and the light one's too low."""

    @property
    def is_open(self) -> bool:
        """True if any exchange could narrow the gap."""
        return self.heavy * self.trust - self.light >= 2 * self.least

    def gain(self, given: float, taken: float) -> float:
        """The least gain of the exchange on either side: the heavy broker gives `given` for `taken`."""
        return min(given * self.trust - taken, (self.heavy - given) * self.trust - self.light + taken)

    def even_at(self, given: float) -> float:
        """The weight that is taken for `given` if the exchange gains both brokers the same. The gain falls as the
        weight goes away from it, by as much."""
        return given * self.trust - (self.heavy * self.trust - self.light) / 2


class Exchange(NamedTuple, Generic[Item]):
    given: Item
    taken: Item | None
    """None: the heavy broker gives, and takes nothing."""


def best_exchange(
    gap: Gap,
    giving: Sequence[tuple[float, Item]],
    taking: Sequence[tuple[float, Item | None]],
    is_legal: Callable[[Item, Item | None], bool],
) -> Exchange[Item] | None:
    """Finds for each given item the legal exchange with the highest gain, and returns the exchange that gains most in
    proportion to the weight that it moves. None: no legal exchange gains enough.

    `giving` has the heavy broker's items and `taking` the light one's, both sorted by weight.
    """
    best: tuple[tuple[float, float], Exchange[Item]] | None = None
    for given, item in reversed(giving):
        if given * gap.trust < gap.least:
            break
        even_at = gap.even_at(given)
        middle = bisect_left(taking, even_at, key=lambda pair: pair[0])
        lighter = (taking[index] for index in range(middle - 1, -1, -1))
        heavier = (taking[index] for index in range(middle, len(taking)))
        for taken, other in merge(lighter, heavier, key=lambda pair: abs(pair[0] - even_at)):
            gain = gap.gain(given, taken)
            if gain < gap.least:
                break
            if is_legal(item, other):
                rank = gain / (given + taken), gain
                if best is None or rank > best[0]:
                    best = rank, Exchange(item, other)
                break
    return None if best is None else best[1]
