"""Checks that a request comes from a member of the current generation."""

from cordwood.groups.classic.group import Group, Member
from cordwood.model.errors import ErrorCode


def find_member(group: Group, member_id: str, instance_id: str | None) -> Member | ErrorCode:
    """The member, or the error for ids that name none. An instance id belongs to the last member that joined with
    it."""
    if instance_id is not None:
        current = group.static_members.get(instance_id)
        if current is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        if current != member_id:
            return ErrorCode.FENCED_INSTANCE_ID
    return group.members.get(member_id, ErrorCode.UNKNOWN_MEMBER_ID)


def find_in_generation(group: Group, member_id: str, instance_id: str | None, generation: int) -> Member | ErrorCode:
    member = find_member(group, member_id, instance_id)
    if isinstance(member, Member) and generation != group.generation:
        return ErrorCode.ILLEGAL_GENERATION
    return member
