"""A member shows that it is alive, by a heartbeat or by committing its positions."""

from cordwood.groups.classic.group import Group, Member, State, find_in_generation
from cordwood.model.errors import ErrorCode
from cordwood.model.moment import Moment


def heartbeat(group: Group | None, member_id: str, instance_id: str | None, generation: int, now: Moment) -> ErrorCode:
    found = standing(group, member_id, instance_id, generation)
    if found in (ErrorCode.NONE, ErrorCode.REBALANCE_IN_PROGRESS) and group is not None:
        group.heard_of(group.members[member_id], now)
    return found


def standing(group: Group | None, member_id: str, instance_id: str | None, generation: int) -> ErrorCode:
    """The answer to a heartbeat of this member."""
    if group is None:
        return ErrorCode.UNKNOWN_MEMBER_ID
    member = find_in_generation(group, member_id, instance_id, generation)
    if not isinstance(member, Member):
        return member
    if group.state is State.PREPARING_REBALANCE:
        return ErrorCode.REBALANCE_IN_PROGRESS
    return ErrorCode.NONE


def may_wait_ms(group: Group | None, member_id: str) -> int:
    """How long the answer to a heartbeat may be held: 0 during a round, else a fraction of the session timeout."""
    if group is None or group.state is not State.STABLE or member_id not in group.members:
        return 0
    return group.members[member_id].session_timeout_ms // 4


def check_commit(
    group: Group | None, member_id: str, instance_id: str | None, generation: int, now: Moment, *, transactional: bool
) -> ErrorCode:
    """Checks that this member may commit positions. A commit without a generation is allowed while the group has no
    members."""
    if generation < 0 and (group is None or group.state is State.EMPTY):
        # A commit without a generation comes, as in Kafka, from a reader that assigns partitions to itself.
        return ErrorCode.NONE
    if group is None:
        return ErrorCode.UNKNOWN_MEMBER_ID
    member = find_in_generation(group, member_id, instance_id, generation)
    if not isinstance(member, Member):
        return member
    group.heard_of(member, now)
    # Between join and sync the member does not know its partitions yet. Before, in PreparingRebalance, it still owns
    # its old partitions, and this is its last chance to commit. A producer would not understand the answer.
    if group.state is State.COMPLETING_REBALANCE and not transactional:
        return ErrorCode.REBALANCE_IN_PROGRESS
    return ErrorCode.NONE
