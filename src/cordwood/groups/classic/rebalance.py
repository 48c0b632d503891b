"""A round begins, waits for its members, and ends with a new generation."""

from cordwood.groups.classic.group import NEVER_MS, Group, Limits, Member, State
from cordwood.groups.classic.outbox import JoinAnswer, Outbox, SyncAnswer
from cordwood.groups.classic.records import encode_group, encode_group_key
from cordwood.model.errors import ErrorCode
from cordwood.model.moment import Moment

LONELY_ROUND_MS = 1_000
"""A round that no member has joined is checked again after this time, or after the rebalance timeout if that is longer:
static members may be away, and a client may name any timeout."""


def begin_or_go_on(group: Group, out: Outbox, now: Moment, limits: Limits) -> None:
    """Begins a round after a change of members, or completes the round under way."""
    if group.state is State.PREPARING_REBALANCE:
        complete_if_all_joined(group, out, now)
    else:
        begin(group, out, now, limits)


def begin(group: Group, out: Outbox, now: Moment, limits: Limits) -> None:
    refuse_syncs(group, out, ErrorCode.REBALANCE_IN_PROGRESS)
    group.pending_sync.clear()
    group.sync_deadline_ms = NEVER_MS
    first_round = group.state is State.EMPTY
    group.move_to(State.PREPARING_REBALANCE, now)
    if first_round and limits.initial_rebalance_delay_ms > 0:
        delay_ms = limits.initial_rebalance_delay_ms
        group.gathering_left_ms = max(group.rebalance_timeout_ms - delay_ms, 0)
        group.newcomer_in_round = False
        group.join_deadline_ms = group.wake_at(now.boot_ms + delay_ms)
        return
    group.gathering_left_ms = None
    group.join_deadline_ms = group.wake_at(now.boot_ms + group.rebalance_timeout_ms)
    complete_if_all_joined(group, out, now)


def complete_if_all_joined(group: Group, out: Outbox, now: Moment) -> None:
    # The first round of a group waits out its delay even if all known members have joined: more are expected.
    if group.gathering_left_ms is None and group.all_joined:
        complete(group, out, now)


def join_deadline_passed(group: Group, out: Outbox, now: Moment, limits: Limits) -> None:
    left_ms = group.gathering_left_ms
    if left_ms and group.newcomer_in_round:
        delay_ms = min(limits.initial_rebalance_delay_ms, left_ms)
        group.gathering_left_ms = left_ms - delay_ms
        group.newcomer_in_round = False
        group.join_deadline_ms = group.wake_at(now.boot_ms + delay_ms)
        return
    complete(group, out, now)


def complete(group: Group, out: Outbox, now: Moment) -> None:
    """Ends the round: removes members that have not joined in time. Static members stay until their session timeout."""
    for member in [each for each in group.members.values() if each.join_ticket is None and each.instance_id is None]:
        remove(group, member, out)
    if group.members and not _elect_leader(group):
        group.join_deadline_ms = group.wake_at(now.boot_ms + max(group.rebalance_timeout_ms, LONELY_ROUND_MS))
        return
    group.generation += 1
    group.gathering_left_ms = None
    group.join_deadline_ms = NEVER_MS
    if not group.members:
        become_empty(group, out, now)
        return
    group.protocol = group.select_protocol()
    group.move_to(State.COMPLETING_REBALANCE, now)
    group.pending_sync = set(group.members)
    group.sync_deadline_ms = group.wake_at(now.boot_ms + group.rebalance_timeout_ms)
    for member in group.members.values():
        member.is_new = False
        group.heard_of(member, now)
        if member.join_ticket is not None:
            out.joins.append((member.join_ticket, joined(group, member)))
            group.has_joined(member, None)


def become_empty(group: Group, out: Outbox, now: Moment) -> None:
    group.protocol = None
    group.leader = None
    group.pending_sync.clear()
    group.sync_deadline_ms = NEVER_MS
    group.move_to(State.EMPTY, now)
    out.records.append((encode_group_key(group.group_id), encode_group(group.stored())))


def joined(group: Group, member: Member) -> JoinAnswer:
    """The JoinGroup answer of a member; the leader's lists all members."""
    members: tuple[tuple[str, str | None, bytes], ...] = ()
    if member.member_id == group.leader:
        members = tuple(
            (other.member_id, other.instance_id, other.metadata(group.protocol)) for other in group.members.values()
        )
    assert group.leader is not None
    return JoinAnswer(
        ErrorCode.NONE,
        member.member_id,
        group.generation,
        group.protocol_type,
        group.protocol,
        group.leader,
        members=members,
    )


def remove(group: Group, member: Member, out: Outbox, reason: ErrorCode = ErrorCode.UNKNOWN_MEMBER_ID) -> None:
    """Removes a member and answers its pending requests, so that a living client joins again."""
    refuse_waiting(group, member, out, reason)
    group.take_out(member)


def refuse_waiting(group: Group, member: Member, out: Outbox, reason: ErrorCode) -> None:
    if member.join_ticket is not None:
        out.joins.append((member.join_ticket, JoinAnswer(reason, member.member_id)))
        group.has_joined(member, None)
    if member.sync_ticket is not None:
        out.syncs.append((member.sync_ticket, SyncAnswer(reason)))
        member.sync_ticket = None


def refuse_syncs(group: Group, out: Outbox, reason: ErrorCode) -> None:
    for member in group.members.values():
        if member.sync_ticket is not None:
            out.syncs.append((member.sync_ticket, SyncAnswer(reason)))
            member.sync_ticket = None


def _elect_leader(group: Group) -> bool:
    """Makes sure that the leader is a member that joined this round; False if no member joined."""
    leader = None if group.leader is None else group.members.get(group.leader)
    if leader is not None and leader.join_ticket is not None:
        return True
    for member in group.members.values():
        if member.join_ticket is not None:
            group.leader = member.member_id
            return True
    return False
