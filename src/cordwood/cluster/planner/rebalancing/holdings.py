"""The holdings of brokers while a plan is made, replicas or leaderships: of each topic, of all, and their weight."""

from collections.abc import Callable, Collection, Iterable

from cordwood.cluster.planner.balance import Key
from cordwood.cluster.planner.rebalancing.gaps import LEAST_SHARE, Exchange, Gap, best_exchange


class Holdings:
    def __init__(self, brokers: Collection[int], topics: Iterable[str]) -> None:
        self.brokers = sorted(brokers)
        self.topics: dict[str, dict[int, dict[Key, None]]] = {
            topic: {broker: {} for broker in self.brokers} for topic in sorted(set(topics))
        }
        """The partitions of each topic that each broker holds."""
        self._of: dict[int, dict[Key, None]] = {broker: {} for broker in self.brokers}
        self._items: dict[int, dict[int, list[tuple[float, Key]]]] = {broker: {} for broker in self.brokers}
        """The items that a broker can give to another, as `next_exchange` found them, until its holdings change."""
        self.count = dict.fromkeys(self.brokers, 0)
        self.weight = dict.fromkeys(self.brokers, 0.0)

    def add(self, key: Key, broker: int, weight: float) -> None:
        """Adds a partition to a broker. Brokers that are away hold nothing."""
        if broker in self.count:
            self.topics[key[0]][broker][key] = None
            self._of[broker][key] = None
            self._items[broker].clear()
            self.count[broker] += 1
            self.weight[broker] += weight

    def move(self, key: Key, giver: int, taker: int, weight: float) -> None:
        del self.topics[key[0]][giver][key]
        del self._of[giver][key]
        self._items[giver].clear()
        self.count[giver] -= 1
        self.weight[giver] -= weight
        self.add(key, taker, weight)

    @property
    def mean(self) -> float:
        return sum(self.weight.values()) / len(self.weight)

    def of(self, broker: int) -> Iterable[Key]:
        return self._of[broker]

    def topics_of(self, broker: int) -> list[str]:
        """The topics that the broker holds partitions of, sorted: few of the cluster's topics, if there are many."""
        return sorted({topic for topic, _ in self._of[broker]})

    def keeps_counts(self, giver: int, taker: int, given: Key, taken: Key | None) -> bool:
        """True if an exchange leaves the counts as even as they are, of each topic and of all."""
        if taken is None:
            return self.count[giver] > self.count[taker] and self._has_more(given, giver, taker)
        same_topic = given[0] == taken[0]
        return same_topic or (self._has_more(given, giver, taker) and self._has_more(taken, taker, giver))

    def _has_more(self, key: Key, broker: int, other: int) -> bool:
        there = self.topics[key[0]]
        return len(there[broker]) > len(there[other])

    def next_exchange(
        self,
        least: float,
        noise: float,
        items: Callable[[int, int], list[tuple[float, Key]]],
        is_legal: Callable[[int, int, Key, Key | None], bool],
    ) -> tuple[int, int, Exchange[Key]] | None:
        """An exchange between a heavy broker and a light one that evens out the weights and keeps the counts; None:
        there is none.

        `items`: the items that a broker can give to another, sorted by weight; the list changes only with the broker's
        holdings. An exchange that gains less than `least` does not count.
        """

        def kept(broker: int, other: int) -> list[tuple[float, Key]]:
            found = self._items[broker]
            if other not in found:
                found[other] = items(broker, other)
            return found[other]

        by_weight = sorted(self.brokers, key=lambda broker: (self.weight[broker], broker))
        least = max(LEAST_SHARE * self.mean, least)
        trust = (1 - noise) / (1 + noise)
        for giver in reversed(by_weight):
            for taker in by_weight:
                gap = Gap(self.weight[giver], self.weight[taker], least, trust)
                if not gap.is_open:
                    break

                def legal(given: Key, taken: Key | None, giver: int = giver, taker: int = taker) -> bool:
                    return self.keeps_counts(giver, taker, given, taken) and is_legal(giver, taker, given, taken)

                found = best_exchange(gap, kept(giver, taker), [(0.0, None), *kept(taker, giver)], legal)
                if found is not None:
                    return giver, taker, found
        return None
