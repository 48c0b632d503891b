"""A member says that it is alive, by a heartbeat or by committing its positions."""

from cordwood.groups.classic.group import Group, Member, State
from cordwood.groups.classic.membership import find_in_generation
from cordwood.model.errors import ErrorCode


def heartbeat(group: Group | None, member_id: str, instance_id: str | None, generation: int, now_ms: int) -> ErrorCode:
    found = standing(group, member_id, instance_id, generation)
    if found in (ErrorCode.NONE, ErrorCode.REBALANCE_IN_PROGRESS) and group is not None:
        group.heard_of(group.members[member_id], now_ms)
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
    """How long a member need not be answered: as long as nothing is under way, and short beside its session."""
    if group is None or group.state is not State.STABLE or member_id not in group.members:
        return 0
    return group.members[member_id].session_timeout_ms // 4


def check_commit(
    group: Group | None, member_id: str, instance_id: str | None, generation: int, now_ms: int, *, transactional: bool
) -> ErrorCode:
    """Whether positions may be committed by this member. A commit without a generation is allowed while the group has
    no members."""
    if generation < 0 and (group is None or group.state is State.EMPTY):
        # As in Kafka: without a generation it is a reader that assigns to itself, whatever it calls itself.
        return ErrorCode.NONE
    if group is None:
        return ErrorCode.UNKNOWN_MEMBER_ID
    member = find_in_generation(group, member_id, instance_id, generation)
    if not isinstance(member, Member):
        return member
    group.heard_of(member, now_ms)
    # Between join and sync the member does not know yet what it owns. Before, in PreparingRebalance, it still owns
    # what it had, and this is its last chance to say how far it got. A producer could not make sense of the answer.
    if group.state is State.COMPLETING_REBALANCE and not transactional:
        return ErrorCode.REBALANCE_IN_PROGRESS
    return ErrorCode.NONE
