"""Deadlines of a classic group: rounds end, and members that miss their session timeout are removed."""

from cordwood.groups.classic.group import NEVER_MS, Group, Limits, Member, State
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
from cordwood.model.moment import Moment


def time_passed(group: Group, out: Outbox, now: Moment, limits: Limits) -> None:
    """Applies every deadline that has passed, and sets the next one."""
    _expire_sessions(group, out, now, limits)
    if group.state is State.PREPARING_REBALANCE and group.join_deadline_ms <= now.boot_ms:
        join_deadline_passed(group, out, now, limits)
    if group.sync_deadline_ms <= now.boot_ms:
        group.sync_deadline_ms = NEVER_MS
        _expire_syncs(group, out, now, limits)
    group.wake_ms = min(
        group.join_deadline_ms if group.state is State.PREPARING_REBALANCE else NEVER_MS,
        group.sync_deadline_ms,
        min(group.pending.values(), default=NEVER_MS),
        min((member.session_deadline_ms for member in group.members.values()), default=NEVER_MS),
    )


def _expire_sessions(group: Group, out: Outbox, now: Moment, limits: Limits) -> None:
    fewer_members = False
    for member_id in [each for each, deadline_ms in group.pending.items() if deadline_ms <= now.boot_ms]:
        del group.pending[member_id]
    for member in [each for each in group.members.values() if each.session_deadline_ms <= now.boot_ms]:
        if _waits_for_us(member):
            group.heard_of(member, now)
            continue
        remove(group, member, out)
        fewer_members = True
    if fewer_members:
        begin_or_go_on(group, out, now, limits)
    elif group.state is State.PREPARING_REBALANCE:
        complete_if_all_joined(group, out, now)


def _waits_for_us(member: Member) -> bool:
    """True if the member waits for an answer of ours, so that its silence is no sign of death. A newcomer is not
    exempt: its wait has an end."""
    return not member.is_new and (member.join_ticket is not None or member.sync_ticket is not None)


def _expire_syncs(group: Group, out: Outbox, now: Moment, limits: Limits) -> None:
    """Removes members that joined and did not sync in time: a missing leader would block the whole round."""
    late = [group.members[member_id] for member_id in sorted(group.pending_sync) if member_id in group.members]
    group.pending_sync.clear()
    if not late or group.state not in (State.COMPLETING_REBALANCE, State.STABLE):
        return
    for member in late:
        remove(group, member, out)
    begin(group, out, now, limits)


def after_loading(group: Group, now: Moment) -> None:
    """Gives every member a whole session timeout after the log was read. Members need not join again."""
    for member in group.members.values():
        group.heard_of(member, now)
    if group.state is State.PREPARING_REBALANCE:
        group.gathering_left_ms = None
        group.join_deadline_ms = group.wake_at(now.boot_ms + group.rebalance_timeout_ms)


def refuse_all(group: Group, out: Outbox, reason: ErrorCode) -> None:
    """Refuses all waiting requests, because the broker stops."""
    for member in group.members.values():
        refuse_waiting(group, member, out, reason)
