"""Who gets which partitions, worked out by the broker: `uniform` (balanced, and sticky) and `range`.

Pure and deterministic: the same members, topics and earlier target give the same assignment.
"""

from collections.abc import Callable
from itertools import islice

from cordwood.groups.consumer.balancing import Subscriber, Topics, share_by_subscription
from cordwood.groups.consumer.shares import Share, partitions_in
from cordwood.groups.consumer.topics import TopicShape

Assign = Callable[[list[Subscriber], Topics], dict[str, Share]]


def assign_range(subscribers: list[Subscriber], topics: Topics) -> dict[str, Share]:
    """For each topic its subscribers in order, each with a stretch of neighbouring partitions."""
    found: dict[str, list[int]] = {each.member_id: [] for each in subscribers}
    readers_of: dict[str, list[str]] = {name: [] for name in topics}
    for each in sorted(
        subscribers, key=lambda each: (each.instance_id is None, each.instance_id or "", each.member_id)
    ):
        for name in each.topics:
            if name in readers_of:
                readers_of[name].append(each.member_id)
    for name, readers in readers_of.items():
        if not readers:
            continue
        topic_id, partitions = topics[name]
        least, more = divmod(partitions, len(readers))
        start = 0
        for place, reader in enumerate(readers if least else readers[:more]):
            end = start + least + (place < more)
            found[reader] += partitions_in(topic_id, range(start, end))
            start = end
    shares = {}
    for each in subscribers:
        share = frozenset(found[each.member_id])
        shares[each.member_id] = each.target if share == each.target else share
    return shares


def assign_uniform(subscribers: list[Subscriber], topics: Topics) -> dict[str, Share]:
    """As even as subscriptions allow; nobody loses more than balance needs."""
    if not subscribers:
        return {}
    if len({each.topics for each in subscribers}) == 1:
        shapes = [shape for name, shape in sorted(topics.items()) if name in subscribers[0].topics]
        return _share_among_equals(subscribers, shapes)
    return share_by_subscription(subscribers, topics)


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


ASSIGNORS: dict[str, Assign] = {"uniform": assign_uniform, "range": assign_range}
DEFAULT_ASSIGNOR = "uniform"
