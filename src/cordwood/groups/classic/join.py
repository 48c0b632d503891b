"""A member asks to be in the group: as a newcomer, again, or as a static member that was away."""

from typing import NamedTuple

from cordwood.groups.classic.group import MAX_NAME_BYTES, Group, Limits, Member, State, find_member
from cordwood.groups.classic.outbox import JoinAnswer, JoinTicket, Outbox
from cordwood.groups.classic.rebalance import begin_or_go_on, joined, refuse_waiting
from cordwood.groups.classic.records import encode_group, encode_group_key
from cordwood.groups.classic.subscription import same_subscription
from cordwood.model.errors import ErrorCode
from cordwood.model.moment import Moment

NEW_MEMBER_PATIENCE_MS = 300_000
"""How long a newcomer may wait for its first round: librdkafka and Java then hang up and come again."""

MAX_PROTOCOLS = 100


class JoinRequest(NamedTuple):
    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocol_type: str
    protocols: tuple[tuple[str, bytes], ...]
    new_member_id: str
    """A new member id for a member without one, else empty: the state machine draws no ids."""
    asks_for_id_first: bool
    """True if the client understands MEMBER_ID_REQUIRED (version 4 and later)."""
    can_skip_assignment: bool
    """True if the client knows that a leader need not assign (version 9 and later)."""


def join(group: Group, request: JoinRequest, ticket: JoinTicket, out: Outbox, now: Moment, limits: Limits) -> None:
    refusal = _refusal(group, request, limits)
    if refusal is not ErrorCode.NONE:
        out.joins.append((ticket, JoinAnswer(refusal, request.member_id)))
    elif not request.member_id:
        _join_without_id(group, request, ticket, out, now, limits)
    elif request.member_id in group.pending and request.instance_id is None:
        del group.pending[request.member_id]
        _add(group, request, request.member_id, ticket, out, now, limits)
    else:
        _join_again(group, request, ticket, out, now, limits)


def _refusal(group: Group, request: JoinRequest, limits: Limits) -> ErrorCode:
    unacceptable = refuse_terms(request, limits)
    if unacceptable is not ErrorCode.NONE:
        return unacceptable
    known_as = request.member_id
    if not known_as and request.instance_id is not None:
        known_as = group.static_members.get(request.instance_id, "")
    if not group.supports(request.protocol_type, [name for name, _ in request.protocols], but=known_as):
        return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    comes_anew = known_as not in group.members and known_as not in group.pending
    if comes_anew and len(group.members) + len(group.pending) >= limits.max_size:
        return ErrorCode.GROUP_MAX_SIZE_REACHED
    return ErrorCode.NONE


def refuse_terms(request: JoinRequest, limits: Limits) -> ErrorCode:
    """Refuses joins that are invalid in every group."""
    if not limits.min_session_timeout_ms <= request.session_timeout_ms <= limits.max_session_timeout_ms:
        return ErrorCode.INVALID_SESSION_TIMEOUT
    names = [request.instance_id or "", request.protocol_type, *(name for name, _ in request.protocols)]
    if len(names) > MAX_PROTOCOLS or any(len(name.encode()) > MAX_NAME_BYTES for name in names):
        return ErrorCode.INVALID_REQUEST
    size = sum(len(metadata) for _, metadata in request.protocols)
    if size > limits.max_member_bytes:
        return ErrorCode.INVALID_REQUEST if size > limits.max_metadata_bytes else ErrorCode.GROUP_MAX_SIZE_REACHED
    return ErrorCode.NONE


def _join_without_id(
    group: Group, request: JoinRequest, ticket: JoinTicket, out: Outbox, now: Moment, limits: Limits
) -> None:
    member_id = request.new_member_id
    if request.instance_id is not None:
        replaced = group.static_members.get(request.instance_id)
        if replaced is not None:
            _come_back(group, group.members[replaced], request, ticket, out, now, limits)
        else:
            _add(group, request, member_id, ticket, out, now, limits)
    elif request.asks_for_id_first:
        # Only a client that returns with the id takes a place: a client that gave up and joined again leaves no ghost.
        group.pending[member_id] = group.wake_at(now.boot_ms + request.session_timeout_ms)
        out.joins.append((ticket, JoinAnswer(ErrorCode.MEMBER_ID_REQUIRED, member_id)))
    else:
        _add(group, request, member_id, ticket, out, now, limits)


def _add(
    group: Group,
    request: JoinRequest,
    member_id: str,
    ticket: JoinTicket,
    out: Outbox,
    now: Moment,
    limits: Limits,
) -> None:
    member = Member(
        member_id,
        request.instance_id,
        request.client_id,
        request.client_host,
        request.session_timeout_ms,
        request.rebalance_timeout_ms,
        request.protocols,
        is_new=True,
        join_ticket=ticket,
    )
    member.session_deadline_ms = group.wake_at(now.boot_ms + NEW_MEMBER_PATIENCE_MS)
    group.add(member, request.protocol_type)
    group.newcomer_in_round = True
    begin_or_go_on(group, out, now, limits)


def _join_again(
    group: Group, request: JoinRequest, ticket: JoinTicket, out: Outbox, now: Moment, limits: Limits
) -> None:
    member = find_member(group, request.member_id, request.instance_id)
    if not isinstance(member, Member):
        out.joins.append((ticket, JoinAnswer(member, request.member_id)))
        return
    unchanged = member.protocols == request.protocols
    leads = member.member_id == group.leader
    # A lost answer is sent again. A leader that joins a stable group wants a new round: its metadata changed.
    if unchanged and (group.state is State.COMPLETING_REBALANCE or (group.state is State.STABLE and not leads)):
        group.heard_of(member, now)
        out.joins.append((ticket, joined(group, member)))
        return
    _update(group, member, request, ticket, out, now)
    begin_or_go_on(group, out, now, limits)


def _update(
    group: Group, member: Member, request: JoinRequest, ticket: JoinTicket | None, out: Outbox, now: Moment
) -> None:
    if member.join_ticket is not None:
        out.joins.append((member.join_ticket, JoinAnswer(ErrorCode.REBALANCE_IN_PROGRESS, member.member_id)))
    group.take_terms(member, request.protocols, request.client_id, request.client_host)
    member.session_timeout_ms = request.session_timeout_ms
    member.rebalance_timeout_ms = request.rebalance_timeout_ms
    group.has_joined(member, ticket)
    if len(group.members) == 1:
        group.protocol_type = request.protocol_type
    if not member.is_new:
        group.heard_of(member, now)


def _come_back(
    group: Group,
    member: Member,
    request: JoinRequest,
    ticket: JoinTicket,
    out: Outbox,
    now: Moment,
    limits: Limits,
) -> None:
    """Lets a restarted static member take its place back with its assignment, and fences the process that has its old
    member id."""
    refuse_waiting(group, member, out, ErrorCode.FENCED_INSTANCE_ID)
    old_id, old_metadata = member.member_id, member.metadata(group.protocol)
    group.rename(member, request.new_member_id)
    _update(group, member, request, None, out, now)
    settled = group.state is State.STABLE and group.select_protocol() == group.protocol
    if settled and same_subscription(old_metadata, member.metadata(group.protocol)):
        out.records.append((encode_group_key(group.group_id), encode_group(group.stored())))
        out.joins.append((ticket, _welcome_back(group, member, old_id, request.can_skip_assignment)))
        return
    group.has_joined(member, ticket)
    begin_or_go_on(group, out, now, limits)


def _welcome_back(group: Group, member: Member, old_id: str, can_skip_assignment: bool) -> JoinAnswer:
    answer = joined(group, member)
    if member.member_id != group.leader:
        return answer
    if can_skip_assignment:
        return answer._replace(skip_assignment=True)
    # An older client that is named as leader would assign again. With its old id as leader it just syncs.
    return answer._replace(leader=old_id, members=())
