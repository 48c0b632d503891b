"""Evens out leaderships, by the order of replicas alone: the leader of a partition at rest is the first replica.

Nothing is copied. Two brokers that share no partition even out through others: the first hands a partition to a third
broker, which hands another one to the second. Where the replicas of topics are even, such chains always reach
leaderships that differ by one at most.
"""

from collections import deque
from collections.abc import Callable, Collection, Mapping
from functools import partial
from typing import Final

from cordwood.cluster.planner.balance import Key, Placed
from cordwood.cluster.planner.rebalancing.holdings import Holdings

LEAST_TRAFFIC: Final = 10_000.0
"""The least gain, in bytes a second, that is worth an exchange of leaderships."""

Chain = list[tuple[Key, int]]
"""Partitions, and the brokers that lead them next."""


class Leaderships:
    """The leaderships while a plan is made."""

    def __init__(self, partitions: Mapping[Key, Placed], brokers: Collection[int], noise: float) -> None:
        self.now = dict(partitions)
        self._noise = noise
        self._held = held = Holdings(brokers, (topic for topic, _ in partitions))
        for key in sorted(self.now):
            held.add(key, self.now[key].replicas[0], self.now[key].traffic)

    def even_out(self) -> None:
        while self._even_out_topics() or self._even_out_counts() or self._even_out_traffic():
            pass

    def _hand_over(self, chain: Chain) -> None:
        for key, leader in chain:
            each = self.now[key]
            self._held.move(key, each.replicas[0], leader, each.traffic)
            self.now[key] = each._replace(replicas=(leader, *(b for b in each.replicas if b != leader)))

    # Counts

    def _even_out_topics(self) -> bool:
        """Evens out leaderships within topics. True if a leadership moved."""
        return sum(self._while_handed_over(partial(self._chain_in, topic)) for topic in self._held.topics) > 0

    def _even_out_counts(self) -> bool:
        """Evens out leaderships of all topics. True if a leadership moved."""
        return self._while_handed_over(self._chain_over_topics)

    def _while_handed_over(self, next_chain: Callable[[], Chain | None]) -> bool:
        moved = False
        while chain := next_chain():
            self._hand_over(chain)
            moved = True
        return moved

    def _chain_in(self, topic: str) -> Chain | None:
        """Takes a leadership of the topic from a broker, and gives one to another that has two fewer."""
        led = self._held.topics[topic]
        fewest = min(len(led[broker]) for broker in self._held.brokers)
        for giver in sorted(
            self._held.brokers, key=lambda broker: (-len(led[broker]), -self._held.count[broker], broker)
        ):
            if len(led[giver]) - fewest < 2:
                return None
            reached = self._reached(topic, giver)
            taker = min(reached, key=lambda broker: (len(led[broker]), self._held.count[broker], broker))
            if len(led[giver]) - len(led[taker]) > 1:
                return _chain(reached, giver, taker)
        return None

    def _reached(self, topic: str, giver: int) -> dict[int, tuple[int, Key]]:
        """The brokers that can get a leadership of the topic for one that `giver` loses; for each the broker and the
        partition from which it comes."""
        reached: dict[int, tuple[int, Key]] = {giver: (giver, ("", 0))}
        todo = deque([giver])
        while todo:
            source = todo.popleft()
            for key in self._held.topics[topic][source]:
                if len(reached) == len(self._held.brokers):
                    return reached
                for broker in self.now[key].replicas[1:]:
                    if broker in self._held.count and broker not in reached:
                        reached[broker] = source, key
                        todo.append(broker)
        return reached

    def _chain_over_topics(self) -> Chain | None:
        """Takes a leadership from a broker, and gives one to another that has two fewer. Each topic on the way stays as
        even as it is: the broker that loses one of its leaderships has one more than the broker that gets one."""
        fewest = min(self._held.count.values())
        for giver in sorted(self._held.brokers, key=lambda broker: (-self._held.count[broker], broker)):
            if self._held.count[giver] - fewest < 2:
                return None
            chains: dict[int, Chain] = {giver: []}
            todo = deque([giver])
            while todo:
                source = todo.popleft()
                for taker, chain in self._neutral_chains(source).items():
                    if taker not in chains:
                        chains[taker] = chains[source] + chain
                        todo.append(taker)
                taker = min(chains, key=lambda broker: (self._held.count[broker], broker))
                if self._held.count[giver] - self._held.count[taker] > 1:
                    return chains[taker]
        return None

    def _neutral_chains(self, source: int) -> dict[int, Chain]:
        chains: dict[int, Chain] = {}
        for topic in self._held.topics_of(source):
            led = self._held.topics[topic]
            takers = [b for b in self._held.brokers if b not in chains and len(led[source]) > len(led[b])]
            if takers:
                reached = self._reached(topic, source)
                chains.update({taker: _chain(reached, source, taker) for taker in takers if taker in reached})
        return chains

    # Traffic

    def _even_out_traffic(self) -> bool:
        """Evens out the traffic of leaders. True if a leadership moved."""
        moved = False
        while step := self._held.next_exchange(LEAST_TRAFFIC, self._noise, self._shared, lambda *_: True):
            giver, taker, exchange = step
            taken: Chain = [] if exchange.taken is None else [(exchange.taken, giver)]
            self._hand_over([(exchange.given, taker), *taken])
            moved = True
        return moved

    def _shared(self, leader: int, follower: int) -> list[tuple[float, Key]]:
        """The partitions that one broker leads and the other one follows, by traffic."""
        led = (self.now[key] for key in self._held.of(leader))
        return sorted((each.traffic, each.key) for each in led if follower in each.replicas)


def _chain(reached: Mapping[int, tuple[int, Key]], giver: int, taker: int) -> Chain:
    chain: Chain = []
    while taker != giver:
        source, key = reached[taker]
        chain.append((key, taker))
        taker = source
    return chain
