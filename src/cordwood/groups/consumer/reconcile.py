"""One member's next step from its current to its target assignment.

First the member gives back partitions that are no longer its own, and confirms it. Then it gets the free ones. A
partition that another member still holds follows when that member has given it back. So a partition never has two
owners, and a member never stops reading a partition that it keeps.
"""

from collections.abc import Callable

from cordwood.groups.consumer.member import Current, MemberState
from cordwood.groups.consumer.partition_sets import NOTHING, Share
from cordwood.groups.consumer.since import since_now, since_within


def next_step(
    current: Current,
    target: Share,
    target_epoch: int,
    held_by_others: Callable[[Share], Share],
    owned: Share | None,
) -> Current:
    """`held_by_others` gives the partitions of a share that other members hold. `owned` is the assignment that the
    member reports, or None if it reported none."""
    if current.state == MemberState.STABLE and current.epoch == target_epoch:
        return current
    # A member in an unknown state may still have the partitions that it was told to give back.
    revokes = current.state in (MemberState.UNREVOKED_PARTITIONS, MemberState.UNKNOWN)
    if revokes and (owned is None or owned & current.revoking):
        return current
    kept = current.assigned & target
    to_revoke = current.assigned - target
    if owned is not None:
        to_revoke &= owned
    if to_revoke:
        since = since_within(current.since, kept | to_revoke)
        state = MemberState.UNREVOKED_PARTITIONS
        return Current(current.epoch, current.previous_epoch, state, kept, to_revoke, since)
    missing = target - kept
    if missing:
        missing = held_by_others(missing)
    state = MemberState.UNRELEASED_PARTITIONS if missing else MemberState.STABLE
    previous_epoch = current.previous_epoch if current.epoch == target_epoch else current.epoch
    assigned = target - missing
    since = since_now(current.since, kept, assigned, target_epoch)
    return Current(target_epoch, previous_epoch, state, assigned, NOTHING, since)
