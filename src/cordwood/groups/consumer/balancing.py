"""Balances members that read different topics: as evenly as moves of single partitions can, with few moves.

Members that read the same topics are interchangeable. They are an audience, and a topic needs only the lightest member
of each of its audiences. So the work grows with the subscriptions of audiences and with the partitions, not with
members times partitions.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush, heapreplace
from typing import NamedTuple

from cordwood.groups.consumer.partition_sets import Share, mask_of, numbers_in, run
from cordwood.groups.consumer.topics import TopicShape


class Subscriber(NamedTuple):
    member_id: str
    instance_id: str | None
    topics: frozenset[str]
    target: Share
    """The member's target assignment so far."""


Topics = Mapping[str, TopicShape]


def share_by_subscription(subscribers: Iterable[Subscriber], topics: Topics) -> dict[str, Share]:
    balance = _Balance(sorted(subscribers), topics)
    balance.give_free()
    while balance.even_out():
        pass
    return balance.shares()


@dataclass(slots=True, eq=False)
class _Topic:
    name: str
    free: int
    """The partitions that no member has, as a mask."""
    held: dict[int, list[int]] = field(default_factory=dict)
    """Partition numbers by the place of their member."""
    audiences: list[int] | None = None
    """The numbers of the audiences that read the topic; None until first used."""


class _Loads:
    """The number of partitions of each member, and the lightest member of each audience.

    A member is known by its place in the list, which also decides between equals. A rank is load and place in one
    number, because they are compared a hundred thousand times.
    """

    def __init__(self, loads: list[int], audiences: Iterable[list[int]]) -> None:
        self._count = len(loads)
        self._loads = loads
        self._audience_of = [0] * len(loads)
        self._ranks: list[list[int]] = []
        """A heap of ranks by audience. Outdated ranks stay in it, and are skipped."""
        for number, places in enumerate(audiences):
            self._ranks.append(sorted(map(self.rank, places)))
            for place in places:
                self._audience_of[place] = number
        self.lightest = [ranks[0] for ranks in self._ranks]
        """The lowest rank by audience."""

    def __getitem__(self, place: int) -> int:
        return self._loads[place]

    def rank(self, place: int) -> int:
        return self._loads[place] * self._count + place

    def place(self, rank: int) -> int:
        return rank % self._count

    def load(self, rank: int) -> int:
        return rank // self._count

    def extremes(self) -> tuple[int, int]:
        return min(self._loads), max(self._loads)

    def change(self, place: int, by: int) -> int:
        """Changes a member's load; returns the lowest rank in its audience."""
        self._loads[place] += by
        audience = self._audience_of[place]
        ranks = self._ranks[audience]
        if len(ranks) == 1:
            ranks[0] = self.rank(place)
        else:
            heappush(ranks, self.rank(place))
            while ranks[0] != self.rank(self.place(ranks[0])):
                heappop(ranks)
        self.lightest[audience] = ranks[0]
        return ranks[0]


class _Balance:
    def __init__(self, members: list[Subscriber], topics: Topics) -> None:
        self._members = members
        self._topics = {
            shape.topic_id.int: _Topic(name, run(0, shape.partitions)) for name, shape in sorted(topics.items())
        }
        audiences: dict[frozenset[str], list[int]] = {}
        for place, member in enumerate(members):
            audiences.setdefault(member.topics, []).append(place)
        self._read = list(audiences)
        """Topics by audience."""
        self._sizes = [len(places) for places in audiences.values()]
        self._loads = _Loads([self._keep(place, member) for place, member in enumerate(members)], audiences.values())

    def _keep(self, place: int, member: Subscriber) -> int:
        """Lets every member keep the partitions that it had and still reads; returns how many were kept."""
        kept = 0
        for number, mask in member.target.masks.items():
            topic = self._topics.get(number)
            if topic is not None and topic.name in member.topics and (held := mask & topic.free):
                topic.free ^= held
                partitions = topic.held[place] = [*numbers_in(held)]
                kept += len(partitions)
        return kept

    def _audiences(self, topic: _Topic) -> list[int]:
        if topic.audiences is None:
            name = topic.name
            topic.audiences = [number for number, names in enumerate(self._read) if name in names]
        return topic.audiences

    def give_free(self) -> None:
        """Assigns partitions with few possible readers first, so that members with more choice take the rest."""
        unshared = [topic for topic in self._topics.values() if topic.free and self._audiences(topic)]
        for topic in sorted(unshared, key=lambda each: sum(map(self._sizes.__getitem__, self._audiences(each)))):
            takers = self._takers(topic)
            for partition in numbers_in(topic.free):
                self._give(topic, partition, takers)
            topic.free = 0

    def _takers(self, topic: _Topic) -> list[int]:
        """A heap of the lowest ranks in the topic's audiences."""
        takers = [*map(self._loads.lightest.__getitem__, self._audiences(topic))]
        heapify(takers)
        return takers

    def _give(self, topic: _Topic, partition: int, takers: list[int]) -> None:
        """Gives a partition to the lightest member."""
        place = self._loads.place(takers[0])
        topic.held.setdefault(place, []).append(partition)
        heapreplace(takers, self._loads.change(place, 1))

    def even_out(self) -> bool:
        """Moves a partition from a member to another reader of its topic that has at least two fewer. Returns False if
        there is no such pair."""
        loads = self._loads
        lightest, heaviest = loads.extremes()
        if heaviest - lightest < 2:
            return False
        even = True
        topics = [topic for topic in self._topics.values() if topic.held]
        ranked = [(-max(map(loads.__getitem__, topic.held)), place) for place, topic in enumerate(topics)]
        for load, place in sorted(ranked):
            # No member becomes lighter than the lightest: after a move the giver still has at least as many as the
            # taker.
            if -load - lightest >= 2 and self._even_out(topics[place]):
                even = False
                lightest, _ = loads.extremes()
        return not even

    def _even_out(self, topic: _Topic) -> bool:
        loads = self._loads
        heaviest = max(map(loads.__getitem__, topic.held))
        if heaviest - loads.load(min(map(loads.lightest.__getitem__, self._audiences(topic)))) < 2:
            return False
        # A taker then has at most one more than the lightest, and a giver at least as many as the taker: no member
        # changes sides, so the heap of givers need not know the takers, nor the heap of takers the givers.
        givers = [(-loads[place], place) for place in topic.held]
        heapify(givers)
        takers = self._takers(topic)
        while givers and -givers[0][0] - loads.load(takers[0]) >= 2:
            load, place = givers[0]
            partitions = topic.held[place]
            partition = partitions.pop()
            loads.change(place, -1)
            self._give(topic, partition, takers)
            if partitions:
                heapreplace(givers, (load + 1, place))
            else:
                del topic.held[place]
                heappop(givers)
        return True

    def shares(self) -> dict[str, Share]:
        found: list[dict[int, int]] = [{} for _ in self._members]
        for number, topic in self._topics.items():
            for place, partitions in topic.held.items():
                found[place][number] = mask_of(partitions)
        shares: dict[str, Share] = {}
        for member, masks in zip(self._members, found, strict=True):
            share = Share(masks)
            # An unchanged share stays the same object, because shares are compared again and again.
            shares[member.member_id] = member.target if share == member.target else share
        return shares
