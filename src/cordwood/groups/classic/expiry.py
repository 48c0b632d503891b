"""What time does to a group: rounds end, and members that were not heard of in time are taken out."""

from cordwood.groups.classic.group import NEVER_MS, Group, Limits, Member, State, shifted
from cordwood.groups.classic.outbox import Outbox
from cordwood.groups.classic.rebalance import (
    begin,
    begin_or_go_on,
    complete_if_all_joined,
    join_deadline_passed,
    refuse_waiting,
    remove,
)
from cordwood.model.errors import ErrorCode


def time_passed(group: Group, out: Outbox, now_ms: int, limits: Limits) -> None:
    """Does what is due, and finds the next deadline."""
    _expire_sessions(group, out, now_ms, limits)
    if group.state is State.PREPARING_REBALANCE and group.join_deadline_ms <= now_ms:
        join_deadline_passed(group, out, now_ms, limits)
    if group.sync_deadline_ms <= now_ms:
        group.sync_deadline_ms = NEVER_MS
        _expire_syncs(group, out, now_ms, limits)
    group.wake_ms = min(
        group.join_deadline_ms if group.state is State.PREPARING_REBALANCE else NEVER_MS,
        group.sync_deadline_ms,
        min(group.pending.values(), default=NEVER_MS),
        min((member.session_deadline_ms for member in group.members.values()), default=NEVER_MS),
    )


def _expire_sessions(group: Group, out: Outbox, now_ms: int, limits: Limits) -> None:
    fewer_members = False
    for member_id in [each for each, deadline_ms in group.pending.items() if deadline_ms <= now_ms]:
        del group.pending[member_id]
    for member in [each for each in group.members.values() if each.session_deadline_ms <= now_ms]:
        if _waits_for_us(member):
            group.heard_of(member, now_ms)
            continue
        remove(group, member, out)
        fewer_members = True
    if fewer_members:
        begin_or_go_on(group, out, now_ms, limits)
    elif group.state is State.PREPARING_REBALANCE:
        complete_if_all_joined(group, out, now_ms)


def _waits_for_us(member: Member) -> bool:
    """Its request is with us, so it is not the one that is late. A newcomer waits too, but not for ever."""
    return not member.is_new and (member.join_ticket is not None or member.sync_ticket is not None)


def _expire_syncs(group: Group, out: Outbox, now_ms: int, limits: Limits) -> None:
    """Who joined and did not sync in time is out: a leader among them would keep everybody waiting."""
    late = [group.members[member_id] for member_id in sorted(group.pending_sync) if member_id in group.members]
    group.pending_sync.clear()
    if not late or group.state not in (State.COMPLETING_REBALANCE, State.STABLE):
        return
    for member in late:
        remove(group, member, out)
    begin(group, out, now_ms, limits)


def after_loading(group: Group, now_ms: int) -> None:
    """The log was read: every member gets a whole session timeout to be heard of, and need not join again."""
    for member in group.members.values():
        group.heard_of(member, now_ms)
    if group.state is State.PREPARING_REBALANCE:
        group.gathering_left_ms = None
        group.join_deadline_ms = group.wake_at(now_ms + group.rebalance_timeout_ms)


def shift_deadlines(group: Group, by_ms: int) -> None:
    """The wall clock was set: what was to wait a while still waits that while."""
    group.join_deadline_ms = shifted(group.join_deadline_ms, by_ms)
    group.sync_deadline_ms = shifted(group.sync_deadline_ms, by_ms)
    group.wake_ms = shifted(group.wake_ms, by_ms)
    group.pending = {member_id: deadline_ms + by_ms for member_id, deadline_ms in group.pending.items()}
    for member in group.members.values():
        member.session_deadline_ms = shifted(member.session_deadline_ms, by_ms)


def refuse_all(group: Group, out: Outbox, reason: ErrorCode) -> None:
    """The broker stops: nobody is left waiting."""
    for member in group.members.values():
        refuse_waiting(group, member, out, reason)
