"""SyncGroup: members ask for their shares; the leader brings all shares."""

from typing import NamedTuple

from cordwood.groups.classic.group import Group, Limits, Member, State, find_in_generation
from cordwood.groups.classic.outbox import Outbox, SyncAnswer, SyncTicket
from cordwood.groups.classic.rebalance import begin, refuse_syncs
from cordwood.groups.classic.records import encode_group, encode_group_key
from cordwood.model.errors import ErrorCode
from cordwood.model.moment import Moment


class SyncRequest(NamedTuple):
    member_id: str
    instance_id: str | None
    generation: int
    protocol_type: str | None
    protocol: str | None
    assignments: dict[str, bytes]


def sync(
    group: Group | None, request: SyncRequest, ticket: SyncTicket, out: Outbox, now: Moment, limits: Limits
) -> None:
    refusal = _refusal(group, request)
    if refusal is not ErrorCode.NONE:
        out.syncs.append((ticket, SyncAnswer(refusal)))
        return
    assert group is not None
    member = group.members[request.member_id]
    group.heard_of(member, now)
    group.pending_sync.discard(member.member_id)
    if group.state is State.STABLE:
        out.syncs.append((ticket, _share(group, member.assignment)))
        return
    if member.sync_ticket is not None:
        out.syncs.append((member.sync_ticket, SyncAnswer(ErrorCode.REBALANCE_IN_PROGRESS)))
    member.sync_ticket = ticket
    if member.member_id == group.leader:
        _take_assignments(group, request.assignments, out, now, limits)


def _refusal(group: Group | None, request: SyncRequest) -> ErrorCode:
    if group is None:
        return ErrorCode.UNKNOWN_MEMBER_ID
    member = find_in_generation(group, request.member_id, request.instance_id, request.generation)
    if not isinstance(member, Member):
        return member
    if request.protocol_type is not None and request.protocol_type != group.protocol_type:
        return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    if group.state is State.PREPARING_REBALANCE:
        # The member's protocol is not checked: the round chooses one. A member that joined while the group had the
        # consumer protocol names its own first protocol, and a client that is refused for it gives up.
        return ErrorCode.REBALANCE_IN_PROGRESS
    if request.protocol is not None and request.protocol != group.protocol:
        return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    return ErrorCode.NONE


def _take_assignments(group: Group, assignments: dict[str, bytes], out: Outbox, now: Moment, limits: Limits) -> None:
    """Writes the record that makes the generation complete. Replaying it makes the group stable."""
    stored = group.stored(assignments)._replace(state_timestamp_ms=now.wall_ms)
    value = encode_group(stored)
    if len(value) > limits.max_metadata_bytes:
        refuse_syncs(group, out, ErrorCode.UNKNOWN_SERVER_ERROR)
        begin(group, out, now, limits)
        return
    group.moved_to(State.STABLE)
    out.records.append((encode_group_key(group.group_id), value))
    for member in group.members.values():
        if member.sync_ticket is not None:
            out.syncs.append((member.sync_ticket, _share(group, assignments.get(member.member_id, b""))))
            member.sync_ticket = None


def not_written(group: Group | None, out: Outbox, now: Moment, limits: Limits) -> None:
    """Begins the round again after the assignments did not reach the log: no member has received one."""
    if group is not None and group.state is State.COMPLETING_REBALANCE:
        begin(group, out, now, limits)


def _share(group: Group, assignment: bytes) -> SyncAnswer:
    return SyncAnswer(ErrorCode.NONE, group.protocol_type, group.protocol, assignment)
