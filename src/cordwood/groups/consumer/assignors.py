"""The broker's assignors: `uniform` (balanced and sticky) and `range`.

Both are pure and deterministic: the same members, topics and earlier target give the same assignment.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence

from cordwood.groups.consumer.balancing import Subscriber, Topics, share_by_subscription
from cordwood.groups.consumer.partition_sets import Share, numbers_in, run
from cordwood.groups.consumer.topics import TopicShape

Assign = Callable[[list[Subscriber], Topics], dict[str, Share]]


def assign_range(subscribers: list[Subscriber], topics: Topics) -> dict[str, Share]:
    """Assigns each topic's partitions in stretches of neighbours, to its subscribers in order."""
    found: dict[str, dict[int, int]] = {each.member_id: {} for each in subscribers}
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
            found[reader][topic_id.int] = run(start, end)
            start = end
    shares = {}
    for each in subscribers:
        share = Share(found[each.member_id])
        shares[each.member_id] = each.target if share == each.target else share
    return shares


def assign_uniform(subscribers: list[Subscriber], topics: Topics) -> dict[str, Share]:
    """Assigns as evenly as subscriptions allow; no member loses more partitions than balance needs."""
    if not subscribers:
        return {}
    if len({each.topics for each in subscribers}) == 1:
        shapes = [shape for name, shape in sorted(topics.items()) if name in subscribers[0].topics]
        return _all_to(subscribers[0], shapes) if len(subscribers) == 1 else _share_among_equals(subscribers, shapes)
    return share_by_subscription(subscribers, topics)


def _all_to(only: Subscriber, shapes: list[TopicShape]) -> dict[str, Share]:
    share = Share({shape.topic_id.int: run(0, shape.partitions) for shape in shapes})
    return {only.member_id: only.target if share == only.target else share}


def _share_among_equals(subscribers: list[Subscriber], shapes: list[TopicShape]) -> dict[str, Share]:
    """Assigns if all members read the same topics: each gets the same number of partitions or one more, and keeps its
    own up to that number. Nearly all groups take this path. Its time grows with members plus partitions."""
    free = {shape.topic_id.int: run(0, shape.partitions) for shape in shapes}
    ordered = sorted(subscribers)
    kept = [_taken(each.target, free) for each in ordered]
    counts = [*map(len, kept)]
    least, more = divmod(sum([shape.partitions for shape in shapes]), len(ordered))
    quotas = [least] * len(ordered)
    if more:
        for place in sorted(range(len(ordered)), key=counts.__getitem__, reverse=True)[:more]:
            quotas[place] += 1
    missing = []
    for place, (count, quota) in enumerate(zip(counts, quotas, strict=True)):
        if count > quota:
            kept[place] = _first(kept[place], quota, free)
        elif count < quota:
            missing.append((place, quota - count))
    for place, won in _dealt(free, missing):
        kept[place] |= won
    return {each.member_id: held for each, held in zip(ordered, kept, strict=True)}


def _taken(share: Share, free: dict[int, int]) -> Share:
    """Takes the free partitions of a share and removes them from `free`. Returns the same object if all of them were
    free."""
    held = {}
    for topic, mask in share.masks.items():
        if topic in free and (both := mask & free[topic]):
            free[topic] ^= both
            held[topic] = both
    return share if held == share.masks else Share(held)


def _first(share: Share, count: int, free: dict[int, int]) -> Share:
    """The first `count` partitions of a share; the others become free."""
    first = {}
    for topic, mask in sorted(share.masks.items()):
        there = mask.bit_count()
        kept = mask if there <= count else mask & run(0, numbers_in(mask)[count])
        if kept:
            first[topic] = kept
        free[topic] |= mask ^ kept
        count = max(count - there, 0)
    return Share(first)


def _dealt(free: dict[int, int], missing: Iterable[tuple[int, int]]) -> Iterator[tuple[int, Share]]:
    """Deals the free partitions, in the order of topic ids and numbers: each place gets as many as it lacks."""
    topics = sorted([(topic, mask) for topic, mask in free.items() if mask], reverse=True)
    numbers: Sequence[int] = ()
    start = 0
    for place, count in missing:
        won = {}
        while count:
            if start == len(numbers):
                topic, mask = topics.pop()
                there = mask.bit_count()
                if there <= count:
                    won[topic] = mask
                    count -= there
                    continue
                numbers, start = numbers_in(mask), 0
            end = min(start + count, len(numbers))
            won[topic] = mask & run(numbers[start], numbers[end - 1] + 1)
            count -= end - start
            start = end
        yield place, Share(won)


ASSIGNORS: dict[str, Assign] = {"uniform": assign_uniform, "range": assign_range}
DEFAULT_ASSIGNOR = "uniform"
