"""Evens out the brokers of a cluster: plans moves of replicas and leaderships. Pure functions.

The goals, the first one above all:

| goal | even is | steps |
| --- | --- | --- |
| racks of each partition | as many racks as can be | a replica moves |
| replicas: of each topic, then of all topics | brokers differ by one at most | a replica moves |
| bytes | see `gaps.py` | a replica moves, or two are exchanged |
| leaderships: of each topic, then of all topics | brokers differ by one at most | another replica is put first |
| traffic | see `gaps.py` | a leadership goes to another replica, or two are exchanged |

A step improves one goal and leaves the goals above it as good as they are, so the steps come to an end, and a plan that
was carried out leaves no step for the next. Two brokers stay further apart if racks forbid every step between them, or
if the only movable partitions would fill a broker beyond `FULL` times the mean.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from itertools import islice
from typing import Final

from cordwood.cluster.planner.balance import Key, Placed, PlannedMove, planned_move, rack_names
from cordwood.cluster.planner.rebalancing.gaps import LEAST_SHARE
from cordwood.cluster.planner.rebalancing.holdings import Holdings
from cordwood.cluster.planner.rebalancing.leaderships import Leaderships

FULL: Final = 1.5
"""Counts are evened out as long as no broker gets more than this multiple of the mean of the brokers' bytes."""
NOISE_OF_BYTES: Final = 0.1
"""The share by which the sizes of logs vary from plan to plan."""
NOISE_OF_TRAFFIC: Final = 0.2
"""The share by which traffic varies from plan to plan: it is watched for some seconds only."""
FEWEST_BYTES: Final = 1 << 20
"""Fewer bytes than this do not count. A partition with fewer bytes may move to even out counts although its new broker
is full (`FULL`), and no replicas are exchanged for a smaller gain."""
_CANDIDATES: Final = 50
"""The most partitions that are compared for one step: a topic may have thousands, mostly of one size."""


def plan_rebalance(partitions: Collection[Placed], racks: Mapping[int, str | None]) -> list[PlannedMove]:
    """Evens out replicas, bytes, leaderships and traffic over the brokers, and racks within each partition. `racks` has
    the brokers that can get replicas: those that serve and are not cordoned. Empty: the brokers are even, or their
    differences may be chance."""
    partitions = [each for each in partitions if each.replicas]
    now = {each.key: each for each in partitions}
    if len(racks) < 2 or _evened(now, racks, NOISE_OF_BYTES, NOISE_OF_TRAFFIC) == now:
        return []
    after = _evened(now, racks, 0.0, 0.0)
    return [planned_move(each, after[each.key].replicas) for each in partitions if after[each.key] != each]


def _evened(
    partitions: Mapping[Key, Placed], racks: Mapping[int, str | None], bytes_noise: float, traffic_noise: float
) -> dict[Key, Placed]:
    replicas = _Replicas(partitions, racks, bytes_noise)
    replicas.even_out()
    leaderships = Leaderships(replicas.now, racks, traffic_noise)
    leaderships.even_out()
    return leaderships.now


class _Replicas:
    """The partitions of each broker while a plan is made."""

    def __init__(self, partitions: Mapping[Key, Placed], racks: Mapping[int, str | None], noise: float) -> None:
        self.now = dict(partitions)
        rack_of = rack_names(racks)
        holders = {broker for each in partitions.values() for broker in each.replicas}
        self._racks = {broker: rack_of(broker) for broker in holders.union(racks)}
        self._noise = noise
        self._held = held = Holdings(racks, (topic for topic, _ in partitions))
        for key in sorted(self.now):
            for broker in self.now[key].replicas:
                held.add(key, broker, self.now[key].size_bytes)
        self._mean = held.mean

    def even_out(self) -> None:
        self._spread_over_racks()
        while self._even_out_topics() or self._even_out_counts() or self._even_out_bytes():
            pass

    def _move(self, key: Key, giver: int, taker: int) -> None:
        each = self.now[key]
        self._held.move(key, giver, taker, each.size_bytes)
        self.now[key] = each._replace(replicas=tuple(taker if b == giver else b for b in each.replicas))

    # Racks

    def _spread_over_racks(self) -> None:
        """Replaces replicas that share a rack while another rack has none."""
        for key in sorted(self.now):
            while better := self._better_by_rack(self.now[key]):
                self._move(key, *better)

    def _better_by_rack(self, each: Placed) -> tuple[int, int] | None:
        held = self._held
        there = held.topics[each.topic]
        used = [self._racks[broker] for broker in each.replicas]
        free = [broker for broker in held.brokers if self._racks[broker] not in used]
        shared = [b for b in each.replicas if b in held.count and used.count(self._racks[b]) > 1]
        if not free or not shared:
            return None

        def fullness(broker: int) -> tuple[int, int, float]:
            return len(there[broker]), held.count[broker], held.weight[broker]

        return max(reversed(shared), key=fullness), min(free, key=fullness)

    def _keeps_racks(self, each: Placed, giver: int, taker: int) -> bool:
        """True if the replica may move: the taker has none, and the partition gets no fewer racks."""
        if taker in each.replicas:
            return False
        left, entered = self._racks[giver], self._racks[taker]
        others = [self._racks[broker] for broker in each.replicas if broker != giver]
        return left == entered or left in others or entered not in others

    # Counts

    def _even_out_topics(self) -> bool:
        """Evens out replicas within topics. True if a replica moved."""
        return sum(self._even_out_topic(there) for there in self._held.topics.values()) > 0

    def _even_out_topic(self, there: Mapping[int, Mapping[Key, None]]) -> bool:
        def movable(giver: int, _taker: int) -> Iterable[Key]:
            return there[giver]

        return self._while_movable(lambda broker: (len(there[broker]), self._held.count[broker]), movable)

    def _even_out_counts(self) -> bool:
        """Evens out replicas of all topics. True if a replica moved."""

        def movable(giver: int, taker: int) -> Iterator[Key]:
            for key in self._held.of(giver):
                there = self._held.topics[key[0]]
                if len(there[giver]) > len(there[taker]):
                    yield key

        return self._while_movable(lambda broker: (self._held.count[broker],), movable)

    def _while_movable(
        self, fullness: Callable[[int], tuple[int, ...]], movable: Callable[[int, int], Iterable[Key]]
    ) -> bool:
        """Moves replicas between brokers whose counts, the first of `fullness`, differ by two or more. True if one
        moved."""
        moved = False
        barren: set[tuple[int, int]] = set()
        while step := self._next_move(fullness, movable, barren) or self._next_move(fullness, movable, set()):
            self._move(*step)
            moved = True
        return moved

    def _next_move(
        self,
        fullness: Callable[[int], tuple[int, ...]],
        movable: Callable[[int, int], Iterable[Key]],
        barren: set[tuple[int, int]],
    ) -> tuple[Key, int, int] | None:
        """The next move. Passes over the `barren` pairs of brokers, between which no replica could move before, and
        adds to them: a search among thousands of partitions that racks forbid is not repeated for every step."""
        brokers, weight = self._held.brokers, self._held.weight
        counts = [fullness(broker)[0] for broker in brokers]
        if max(counts) - min(counts) < 2:
            return None
        by_fullness = sorted(brokers, key=lambda broker: (*fullness(broker), weight[broker], broker))
        for giver in reversed(by_fullness):
            for taker in by_fullness:
                if fullness(giver)[0] - fullness(taker)[0] < 2:
                    break
                if (giver, taker) in barren:
                    continue
                legal = (key for key in movable(giver, taker) if self._may_move(self.now[key], giver, taker))
                ranked = [(*self._harm(self.now[key], giver, taker), key) for key in islice(legal, _CANDIDATES)]
                if ranked:
                    return min(ranked)[-1], giver, taker
                barren.add((giver, taker))
        return None

    def _may_move(self, each: Placed, giver: int, taker: int) -> bool:
        """True if the move keeps the racks, and does not fill the taker too much."""
        low, high = 1 / (1 + self._noise), 1 / (1 - self._noise)
        filled = (self._held.weight[taker] + each.size_bytes) * high
        fits = filled <= FULL * self._mean * low or each.size_bytes * high < FEWEST_BYTES
        return fits and self._keeps_racks(each, giver, taker)

    def _harm(self, each: Placed, giver: int, taker: int) -> tuple[float, int]:
        """The distance of both brokers' bytes from even after the move, and the bytes that are copied."""
        mean, weight = self._mean, self._held.weight
        after = weight[giver] - each.size_bytes, weight[taker] + each.size_bytes
        return sum(max(0.0, abs(size - mean) - LEAST_SHARE * mean) for size in after), each.size_bytes

    # Bytes

    def _even_out_bytes(self) -> bool:
        """Evens out bytes. True if a replica moved."""
        moved = False
        while step := self._held.next_exchange(FEWEST_BYTES, self._noise, self._items, self._legal_exchange):
            giver, taker, exchange = step
            self._move(exchange.given, giver, taker)
            if exchange.taken is not None:
                self._move(exchange.taken, taker, giver)
            moved = True
        return moved

    def _items(self, broker: int, _other: int) -> list[tuple[float, Key]]:
        return sorted((self.now[key].size_bytes, key) for key in self._held.of(broker))

    def _legal_exchange(self, giver: int, taker: int, given: Key, taken: Key | None) -> bool:
        return self._keeps_racks(self.now[given], giver, taker) and (
            taken is None or self._keeps_racks(self.now[taken], taker, giver)
        )
