"""The epochs in which a member got its partitions, from which on its commits there count. `Since` is a sorted list of
epochs with their shares, mostly one; no partition occurs twice."""

from collections.abc import Iterable

from cordwood.groups.consumer.partition_sets import NOTHING, Share

Since = tuple[tuple[int, Share], ...]


def since_within(since: Since, share: Share) -> Since:
    return tuple([(epoch, both) for epoch, got in since if (both := got & share)])


def since_now(since: Since, kept: Share, assigned: Share, epoch: int) -> Since:
    """The epochs of a member's assignment: the partitions in `kept` keep theirs, all others have this epoch."""
    if not kept:
        return ((epoch, assigned),) if assigned else ()
    found = dict(since_within(since, kept))
    new = assigned
    for share in found.values():
        new -= share
    if new:
        found[epoch] = found.get(epoch, NOTHING) | new
    if len(found) == 1:
        return tuple([(each, assigned) for each in found])
    return tuple(sorted(found.items()))


def had_all_in(since: Since, epoch: int, share: Share) -> bool:
    """True if the member has had all of these partitions since that epoch or longer."""
    for got, partitions in since:
        if got <= epoch:
            share -= partitions
    return not share


def latest_since(told: Iterable[tuple[int, int, int]]) -> Since:
    """The epochs in a record's list of epochs, topics and masks; the later of two epochs of a partition counts."""
    found: dict[int, dict[int, int]] = {}
    seen: dict[int, int] = {}
    for epoch, topic, mask in reversed([*told]):
        before = seen.get(topic, 0)
        seen[topic] = before | mask
        if new := mask & ~before:
            masks = found.setdefault(epoch, {})
            masks[topic] = masks.get(topic, 0) | new
    return tuple([(epoch, Share(masks)) for epoch, masks in sorted(found.items())])
