"""Who gets which partitions, worked out by the broker: `uniform` (balanced, and sticky) and `range`.

Pure and deterministic: the same members, topics and earlier target give the same assignment.
"""

from collections.abc import Callable, Mapping
from itertools import islice
from typing import NamedTuple

from cordwood.groups.consumer.shares import NOTHING, Share, partitions_in, topic_of
from cordwood.groups.consumer.topics import TopicShape
from cordwood.model.identifiers import TopicId


class Subscriber(NamedTuple):
    member_id: str
    instance_id: str | None
    topics: frozenset[str]
    target: Share
    """What it was to have so far."""


Topics = Mapping[str, TopicShape]
Assign = Callable[[list[Subscriber], Topics], dict[str, Share]]


def assign_range(subscribers: list[Subscriber], topics: Topics) -> dict[str, Share]:
    """For each topic its subscribers in order, each with a stretch of neighbouring partitions."""
    shares: dict[str, set[int]] = {each.member_id: set() for each in subscribers}
    ordered = sorted(subscribers, key=lambda each: (each.instance_id is None, each.instance_id or "", each.member_id))
    for name, shape in sorted(topics.items()):
        readers = [each for each in ordered if name in each.topics]
        if not readers:
            continue
        least, more = divmod(shape.partitions, len(readers))
        start = 0
        for place, reader in enumerate(readers):
            end = start + least + (place < more)
            shares[reader.member_id].update(partitions_in(shape.topic_id, range(start, end)))
            start = end
    return {member_id: frozenset(share) for member_id, share in shares.items()}


def assign_uniform(subscribers: list[Subscriber], topics: Topics) -> dict[str, Share]:
    """As even as subscriptions allow; nobody loses more than balance needs."""
    if len({each.topics for each in subscribers}) == 1:
        shapes = [shape for name, shape in sorted(topics.items()) if name in subscribers[0].topics]
        return _share_among_equals(subscribers, shapes)
    return _share_by_subscription(subscribers, topics)


def _share_among_equals(subscribers: list[Subscriber], shapes: list[TopicShape]) -> dict[str, Share]:
    """All read the same: everybody has so many or one more, and keeps what it had up to that.

    The way of nearly all groups, in time that grows with members and partitions, not with their product.
    """
    wanted = [partition for shape in shapes for partition in partitions_in(shape.topic_id, range(shape.partitions))]
    free = set(wanted)
    ordered = sorted(subscribers)
    kept = []
    for each in ordered:
        held = sorted(each.target & free)
        free.difference_update(held)
        kept.append(held)
    least, more = divmod(len(wanted), len(ordered))
    quotas = [least] * len(ordered)
    for place in sorted(range(len(ordered)), key=lambda place: -len(kept[place]))[:more]:
        quotas[place] += 1
    for held, quota in zip(kept, quotas, strict=True):
        free.update(held[quota:])
        del held[quota:]
    left = iter(sorted(free))
    shares: dict[str, Share] = {}
    for each, held, quota in zip(ordered, kept, quotas, strict=True):
        unchanged = len(held) == quota == len(each.target)
        shares[each.member_id] = each.target if unchanged else frozenset([*held, *islice(left, quota - len(held))])
    return shares


def _share_by_subscription(subscribers: list[Subscriber], topics: Topics) -> dict[str, Share]:
    readers_of: dict[TopicId, list[str]] = {}
    wanted: list[int] = []
    for name, shape in sorted(topics.items()):
        readers_of[shape.topic_id] = sorted(each.member_id for each in subscribers if name in each.topics)
        if readers_of[shape.topic_id]:
            wanted += partitions_in(shape.topic_id, range(shape.partitions))
    free = set(wanted)
    shares: dict[str, list[int]] = {}
    for each in sorted(subscribers):
        kept = sorted(
            partition for partition in each.target & free if each.member_id in readers_of[topic_of(partition)]
        )
        shares[each.member_id] = kept
        free.difference_update(kept)
    # Partitions that few can read first: those who can read more take what is left.
    for partition in sorted(free, key=lambda each: (len(readers_of[topic_of(each)]), each)):
        reader = min(readers_of[topic_of(partition)], key=lambda member_id: (len(shares[member_id]), member_id))
        shares[reader].append(partition)
    while _move_one(shares, readers_of):
        pass
    return {member_id: frozenset(share) if share else NOTHING for member_id, share in shares.items()}


def _move_one(shares: dict[str, list[int]], readers_of: dict[TopicId, list[str]]) -> bool:
    """Moves a partition from a member with many to one with at least two fewer; False if there is none."""
    lightest = min(map(len, shares.values()), default=0)
    for giver in sorted(shares, key=lambda member_id: (-len(shares[member_id]), member_id)):
        if len(shares[giver]) - lightest < 2:
            return False
        seen: set[TopicId] = set()
        for place in range(len(shares[giver]) - 1, -1, -1):
            topic_id = topic_of(shares[giver][place])
            if topic_id in seen:
                continue
            seen.add(topic_id)
            taker = min(readers_of[topic_id], key=lambda member_id: (len(shares[member_id]), member_id))
            if len(shares[giver]) - len(shares[taker]) >= 2:
                shares[taker].append(shares[giver].pop(place))
                return True
    return False


ASSIGNORS: dict[str, Assign] = {"uniform": assign_uniform, "range": assign_range}
DEFAULT_ASSIGNOR = "uniform"
