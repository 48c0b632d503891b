"""A member says that it is alive, by a heartbeat or by committing its positions."""

from cordwood.groups.classic.group import Group, Member, State
from cordwood.groups.classic.membership import find_in_generation
from cordwood.model.errors import ErrorCode


def heartbeat(group: Group | None, member_id: str, instance_id: str | None, generation: int, now_ms: int) -> ErrorCode:
    if group is None:
        return ErrorCode.UNKNOWN_MEMBER_ID
    member = find_in_generation(group, member_id, instance_id, generation)
    if not isinstance(member, Member):
        return member
    group.heard_of(member, now_ms)
    if group.state is State.PREPARING_REBALANCE:
        return ErrorCode.REBALANCE_IN_PROGRESS
    return ErrorCode.NONE


def check_commit(
    group: Group | None, member_id: str, instance_id: str | None, generation: int, now_ms: int, *, transactional: bool
) -> ErrorCode:
    """Whether positions may be committed in this name. Without one only if the group has no members."""
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
