"""One member's next step from what it has to what it is to have.

First it gives back what is no longer its own, and says so; then it gets what is free; what another still holds it gets
when that one has given it back. So a partition never has two owners, and nobody stops reading what it keeps.
"""

from collections.abc import Mapping

from cordwood.groups.consumer.records import Current, MemberState
from cordwood.groups.consumer.shares import Share


def next_step(
    member_id: str,
    current: Current,
    target: Share,
    target_epoch: int,
    owners: Mapping[int, str],
    owned: Share | None,
) -> Current:
    """`owned` is what the member says that it has, or None if it did not say."""
    if current.state == MemberState.STABLE and current.epoch == target_epoch:
        return current
    if current.state == MemberState.UNREVOKED_PARTITIONS and (owned is None or owned & current.revoking):
        return current
    kept = current.assigned & target
    to_revoke = current.assigned - target
    if owned is not None:
        to_revoke &= owned
    if to_revoke:
        since = {each: current.since[each] for each in kept | to_revoke}
        state = MemberState.UNREVOKED_PARTITIONS
        return Current(current.epoch, current.previous_epoch, state, kept, frozenset(to_revoke), since)
    held_by_others = {each for each in target - kept if owners.get(each, member_id) != member_id}
    state = MemberState.UNRELEASED_PARTITIONS if held_by_others else MemberState.STABLE
    previous_epoch = current.previous_epoch if current.epoch == target_epoch else current.epoch
    assigned = frozenset(target - held_by_others)
    since = {each: current.since.get(each, target_epoch) if each in kept else target_epoch for each in assigned}
    return Current(target_epoch, previous_epoch, state, assigned, frozenset(), since)
