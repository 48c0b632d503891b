"""Members that speak the classic protocol to a group of the consumer protocol (KIP-848).

A heartbeat tells such a member to join again whenever it has a step to take. Its join is answered at once: it waits for
no other member and never leads. The answer to its sync has its assignment. The generation that it sees is its own
member epoch.
"""

from collections.abc import Callable
from typing import NamedTuple

from cordwood.groups.classic.group import CONSUMER_PROTOCOL_TYPE, NEVER_MS, Limits
from cordwood.groups.classic.join import JoinRequest, refuse_terms
from cordwood.groups.classic.outbox import JoinAnswer, JoinTicket, Outbox, SyncAnswer
from cordwood.groups.classic.subscription import Subscription, read_subscription, write_assignment
from cordwood.groups.classic.sync import SyncRequest
from cordwood.groups.consumer.group import ConsumerGroup, ConsumerMember
from cordwood.groups.consumer.heartbeat import JOINING, HeartbeatRequest, advance, count_from, is_short, updated
from cordwood.groups.consumer.member import ClassicPart, MemberState
from cordwood.groups.consumer.migration import to_classic
from cordwood.groups.consumer.naming import named, share_named
from cordwood.groups.consumer.partition_sets import NOTHING, Share
from cordwood.groups.consumer.target import is_up_to_date
from cordwood.groups.consumer.topics import TopicView
from cordwood.groups.state.committed_positions import Record
from cordwood.groups.state.record_fields import UnreadableRecord
from cordwood.model.errors import ErrorCode, ProtocolError
from cordwood.model.moment import Moment

NO_LEADER = ""


class _Place(NamedTuple):
    """The member id and epoch with which a member joins."""

    member_id: str
    epoch: int
    replaced: str | None = None
    """The static member that the new member replaces."""


def join(
    group: ConsumerGroup,
    request: JoinRequest,
    ticket: JoinTicket,
    topics: TopicView,
    out: Outbox,
    now: Moment,
    limits: Limits,
) -> None:
    try:
        answer = _join(group, request, topics, out, now, limits)
    except ProtocolError as refusal:
        answer = JoinAnswer(refusal.code, request.member_id)
    out.joins.append((ticket, answer))


def _join(
    group: ConsumerGroup, request: JoinRequest, topics: TopicView, out: Outbox, now: Moment, limits: Limits
) -> JoinAnswer:
    unacceptable = refuse_terms(request, limits)
    if unacceptable is not ErrorCode.NONE:
        return JoinAnswer(unacceptable, request.member_id)
    subscription = _readable(request)
    if subscription is None or not _fits(group, request):
        return JoinAnswer(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, request.member_id)
    if request.asks_for_id_first and not request.member_id and request.instance_id is None:
        return JoinAnswer(ErrorCode.MEMBER_ID_REQUIRED, request.new_member_id)
    owned = share_named(subscription.owned, topics)
    place = _place(group, request, owned, limits)
    if isinstance(place, ErrorCode):
        return JoinAnswer(place, request.member_id)
    asked = HeartbeatRequest(
        place.member_id,
        place.epoch,
        request.instance_id,
        subscription.rack_id,
        request.client_id,
        request.client_host,
        max(request.rebalance_timeout_ms, 0),
        tuple(sorted(subscription.topics)),
        None,
        owned if place.epoch != JOINING else NOTHING,
        "",
        ClassicPart(request.session_timeout_ms, request.protocols),
    )
    if _gives_the_group_back(group, asked, place.replaced, topics, out, now, limits):
        return JoinAnswer(ErrorCode.REBALANCE_IN_PROGRESS, request.member_id)
    records: list[Record] = []
    step = advance(group, asked, place.replaced, topics, records, now, limits.max_metadata_bytes)
    out.records += records
    protocol = request.protocols[0][0]
    return JoinAnswer(ErrorCode.NONE, place.member_id, step.epoch, CONSUMER_PROTOCOL_TYPE, protocol, NO_LEADER)


def _place(group: ConsumerGroup, request: JoinRequest, owned: Share, limits: Limits) -> _Place | ErrorCode:
    """The place of a joining member in the group, or the error of its join."""
    if request.member_id:
        found = _find(group, request.member_id, request.instance_id)
        if isinstance(found, ConsumerMember):
            found.session_deadline_ms = NEVER_MS  # deadlines are set again after the step
            return _Place(request.member_id, group.current(request.member_id).epoch)
        # The client may have got its id from this broker a moment ago. Such a member must own no partitions.
        if found is not ErrorCode.UNKNOWN_MEMBER_ID or request.instance_id is not None or owned:
            return found
        if not is_short(request.member_id):
            return ErrorCode.UNKNOWN_MEMBER_ID
    elif request.instance_id in group.static_members:
        return _Place(request.new_member_id, JOINING, group.static_members[request.instance_id])
    member_id = request.member_id or request.new_member_id
    if member_id not in group.members and len(group.members) >= limits.max_size:
        return ErrorCode.GROUP_MAX_SIZE_REACHED
    return _Place(member_id, JOINING)


def _gives_the_group_back(
    group: ConsumerGroup,
    asked: HeartbeatRequest,
    replaced: str | None,
    topics: TopicView,
    out: Outbox,
    now: Moment,
    limits: Limits,
) -> bool:
    """True if this join replaces the last member that spoke the consumer protocol. The member then joins once more, to
    a classic group that knows it already."""
    if replaced is None or group.members[replaced].profile.classic is not None:
        return False
    profiles = {member_id: member.profile for member_id, member in group.members.items()}
    profiles[replaced] = updated(group.members[replaced], asked)
    records = to_classic(group, profiles, topics, now, limits.max_metadata_bytes)
    out.records += records
    return bool(records)


def _readable(request: JoinRequest) -> Subscription | None:
    """The subscription of a member: its protocols all name the same topics."""
    try:
        return read_subscription(request.protocols[0][1]) if request.protocols else None
    except UnreadableRecord:
        return None


def _fits(group: ConsumerGroup, request: JoinRequest) -> bool:
    """True if all classic members share a protocol, which they need once the group is classic again."""
    itself = request.member_id or group.static_members.get(request.instance_id or "", "")
    common = {name for name, _ in request.protocols}
    for member_id, member in group.members.items():
        if member.profile.classic is not None and member_id != itself:
            common.intersection_update([name for name, _ in member.profile.classic.protocols])
    return bool(common) and request.protocol_type == CONSUMER_PROTOCOL_TYPE


def _find(group: ConsumerGroup, member_id: str, instance_id: str | None) -> ConsumerMember | ErrorCode:
    """The member of the classic protocol, or the error for ids that name none."""
    if instance_id is not None:
        known_as = group.static_members.get(instance_id)
        if known_as is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        if known_as != member_id:
            return ErrorCode.FENCED_INSTANCE_ID
    member = group.members.get(member_id)
    return ErrorCode.UNKNOWN_MEMBER_ID if member is None or member.profile.classic is None else member


def _find_in_generation(
    group: ConsumerGroup, member_id: str, instance_id: str | None, generation: int
) -> ConsumerMember | ErrorCode:
    member = _find(group, member_id, instance_id)
    if isinstance(member, ConsumerMember) and generation != group.current(member_id).epoch:
        return ErrorCode.ILLEGAL_GENERATION
    return member


def sync(group: ConsumerGroup, request: SyncRequest, topics: TopicView, now: Moment) -> SyncAnswer:
    member = _find_in_generation(group, request.member_id, request.instance_id, request.generation)
    if not isinstance(member, ConsumerMember):
        return SyncAnswer(member)
    assert member.profile.classic is not None
    _heard_of(group, request.member_id, member, now)
    current = group.current(request.member_id)
    if current.epoch < group.epoch and current.state != MemberState.UNREVOKED_PARTITIONS:
        return SyncAnswer(ErrorCode.REBALANCE_IN_PROGRESS)
    # The member joined with all of these protocols. A round that was under way at the conversion may have chosen
    # another than the first, and a client that is refused for it gives up.
    protocols = [name for name, _ in member.profile.classic.protocols]
    protocol = protocols[0] if request.protocol is None else request.protocol
    if request.protocol_type not in (None, CONSUMER_PROTOCOL_TYPE) or protocol not in protocols:
        return SyncAnswer(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    member.step_deadline_ms = NEVER_MS
    assignment = write_assignment(named(current.assigned, member.profile.topics, topics))
    return SyncAnswer(ErrorCode.NONE, CONSUMER_PROTOCOL_TYPE, protocol, assignment)


def heartbeat(
    group: ConsumerGroup, member_id: str, instance_id: str | None, generation: int, topics: TopicView, now: Moment
) -> ErrorCode:
    found = standing(group, member_id, instance_id, generation, topics)
    if found in (ErrorCode.NONE, ErrorCode.REBALANCE_IN_PROGRESS):
        member = group.members[member_id]
        _heard_of(group, member_id, member, now)
        if found is ErrorCode.REBALANCE_IN_PROGRESS and member.step_deadline_ms == NEVER_MS:
            has_to_act(group, member, now)
    return found


def has_to_act(group: ConsumerGroup, member: ConsumerMember, now: Moment) -> None:
    """Sets the deadline of a member that was told to join again, or has to sync: a member that does neither blocks the
    others."""
    member.step_deadline_ms = group.wake_at(now.boot_ms + member.profile.rebalance_timeout_ms)


def standing(
    group: ConsumerGroup, member_id: str, instance_id: str | None, generation: int, topics: TopicView
) -> ErrorCode:
    """The answer to a heartbeat of this member: an error code if it has to join again. Changed topics count, too,
    because no other member's heartbeat may notice them."""
    member = _find_in_generation(group, member_id, instance_id, generation)
    if not isinstance(member, ConsumerMember):
        return member
    current = group.current(member_id)
    if current.epoch < group.epoch or current.state == MemberState.UNREVOKED_PARTITIONS:
        return ErrorCode.REBALANCE_IN_PROGRESS
    if not is_up_to_date(group, topics):
        return ErrorCode.REBALANCE_IN_PROGRESS
    if current.state == MemberState.UNRELEASED_PARTITIONS:
        missing = group.targets.get(member_id, NOTHING) - current.assigned
        if not group.held_by_others(missing, (member_id,)):
            return ErrorCode.REBALANCE_IN_PROGRESS
    return ErrorCode.NONE


def may_wait_ms(group: ConsumerGroup, member_id: str) -> int:
    """How long a heartbeat without news may wait for some."""
    member = group.members.get(member_id)
    if member is None or member.profile.classic is None:
        return 0
    return member.profile.classic.session_timeout_ms // 4


def check_commit(
    group: ConsumerGroup,
    member_id: str,
    instance_id: str | None,
    generation: int,
    partitions: Callable[[], Share],
) -> ErrorCode:
    """Checks that a classic member may commit positions in these partitions: not in one that another member reads by
    now, even within a generation that goes on."""
    found = _find_in_generation(group, member_id, instance_id, generation)
    if not isinstance(found, ConsumerMember):
        return found
    if len(group.members) > 1 and group.held_by_others(partitions(), (member_id,)):
        return ErrorCode.ILLEGAL_GENERATION
    return ErrorCode.NONE


def _heard_of(group: ConsumerGroup, member_id: str, member: ConsumerMember, now: Moment) -> None:
    assert member.profile.classic is not None
    count_from(group, member_id, member, now, member.profile.classic.session_timeout_ms)
