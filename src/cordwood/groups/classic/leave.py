"""LeaveGroup: a member leaves by itself, or an administrator removes it."""

from cordwood.groups.classic.group import Group, Limits, Member, State, find_member
from cordwood.groups.classic.outbox import Outbox
from cordwood.groups.classic.rebalance import begin_or_go_on, complete_if_all_joined, remove
from cordwood.model.errors import ErrorCode
from cordwood.model.moment import Moment

Leaving = tuple[str, str | None]
"""Member id, instance id. An administrator names a static member by its instance id alone."""


def leave(group: Group | None, leaving: list[Leaving], out: Outbox, now: Moment, limits: Limits) -> list[ErrorCode]:
    """Removes members; returns one error code for each."""
    if group is None:
        return [ErrorCode.UNKNOWN_MEMBER_ID] * len(leaving)
    size_before = len(group.members)
    errors = [_take_out(group, member_id, instance_id, out) for member_id, instance_id in leaving]
    if len(group.members) < size_before:
        begin_or_go_on(group, out, now, limits)
    elif group.state is State.PREPARING_REBALANCE:
        complete_if_all_joined(group, out, now)
    return errors


def _take_out(group: Group, member_id: str, instance_id: str | None, out: Outbox) -> ErrorCode:
    if instance_id is None and member_id in group.pending:
        del group.pending[member_id]
        return ErrorCode.NONE
    if instance_id is not None and not member_id:
        member_id = group.static_members.get(instance_id, "")
    member = find_member(group, member_id, instance_id)
    if not isinstance(member, Member):
        return member
    remove(group, member, out)
    return ErrorCode.NONE
