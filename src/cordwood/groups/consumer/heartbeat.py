"""A member's heartbeat: the member joins, stays, changes its subscription, takes its next step, or leaves."""

from collections.abc import Callable
from typing import NamedTuple

from cordwood.groups.classic.group import MAX_NAME_BYTES, NEVER_MS
from cordwood.groups.classic.leave import Leaving
from cordwood.groups.consumer.assignors import ASSIGNORS
from cordwood.groups.consumer.group import FRESH, LEFT_FOR_A_WHILE, ConsumerGroup, ConsumerMember
from cordwood.groups.consumer.member import MEMBER_MOVES, ClassicPart, Current, MemberState, Profile
from cordwood.groups.consumer.migration import to_classic
from cordwood.groups.consumer.partition_sets import NOTHING, Share
from cordwood.groups.consumer.reconcile import next_step
from cordwood.groups.consumer.records import (
    CURRENT_TYPE,
    MEMBER_TYPE,
    TARGET_TYPE,
    encode_consumer_key,
    encode_current,
    encode_profile,
    encode_target,
)
from cordwood.groups.consumer.since import had_all_in, since_within
from cordwood.groups.consumer.target import is_up_to_date, retarget
from cordwood.groups.consumer.topics import Reader, TopicView
from cordwood.groups.state.committed_positions import Record
from cordwood.model.errors import ErrorCode, ProtocolError
from cordwood.model.moment import Moment

JOINING = 0
LEAVING = -1

MAX_EXPRESSIONS = 100
"""The most regular expressions in one group: each is kept with all its matching topics."""

NOBODY = Profile(None, None, "", "", frozenset(), -1, None)


class ConsumerLimits(NamedTuple):
    """Bounds on consumer-protocol groups, from the broker's settings."""

    max_size: int
    session_timeout_ms: int
    max_profile_bytes: int


class HeartbeatRequest(NamedTuple):
    member_id: str
    epoch: int
    instance_id: str | None
    rack_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    topics: tuple[str, ...] | None
    """None: as before."""
    assignor: str | None
    owned: Share | None
    """None: as before."""
    expression: str | None = None
    """None: as before; empty: no expression any more. The caller has checked the expression."""
    classic: ClassicPart | None = None
    """Set if the request stands for the JoinGroup of a classic member."""
    reader: Reader | None = None
    """The one for which the member's expression is matched; None: the broker asks nobody for rights."""

    @property
    def subscribes(self) -> bool:
        return self.topics is not None or self.expression is not None

    @property
    def says_nothing(self) -> bool:
        """True if the request leaves the member's profile as it is."""
        names = (self.instance_id, self.rack_id, self.topics, self.assignor, self.expression)
        return names == (None, None, None, None, None) and self.rebalance_timeout_ms < 0

    @property
    def is_full(self) -> bool:
        return self.rebalance_timeout_ms >= 0 and self.subscribes and self.owned is not None


class HeartbeatAnswer(NamedTuple):
    epoch: int
    assignment: Share | None
    """None: as before."""


def heartbeat(
    group: ConsumerGroup,
    request: HeartbeatRequest,
    topics: TopicView,
    records: list[Record],
    limits: ConsumerLimits,
    now: Moment,
) -> HeartbeatAnswer:
    """Adds the records of the heartbeat, and returns its answer. Raises ProtocolError, and then changes nothing. The
    caller notes the reader of the request when the records are replayed (`read_by`)."""
    if request.owned is not None and request.owned == group.current(request.member_id).assigned:
        group.repeats.pop(request.member_id, None)
    if _changes_nothing(group, request, topics):
        return HeartbeatAnswer(request.epoch, None)
    if request.epoch in (LEAVING, LEFT_FOR_A_WHILE):
        return _leave(group, request, topics, records, now, limits)
    replaced = _check(group, request, limits)
    return advance(group, request, replaced, topics, records, now, limits.max_profile_bytes)


def advance(
    group: ConsumerGroup,
    request: HeartbeatRequest,
    replaced: str | None,
    topics: TopicView,
    records: list[Record],
    now: Moment,
    max_profile_bytes: int,
) -> HeartbeatAnswer:
    """Takes the next step of a member, old or new, perhaps in the place of another."""
    known = group.members.get(replaced or request.member_id)
    current = group.current(replaced or request.member_id)
    if replaced is not None:
        # A static member came back: its assignment goes to its new id.
        records += group.member_tombstones(replaced)
        current = current._replace(epoch=JOINING, previous_epoch=JOINING)
    elif request.epoch == JOINING and known is not None:
        # The member joins again without partitions, so other members need not wait for them.
        current = FRESH
    profile = updated(known, request)
    if known is None or replaced is not None or (profile is not known.profile and profile != known.profile):
        value = encode_profile(profile)
        if len(value) > max_profile_bytes:
            raise ProtocolError(ErrorCode.INVALID_REQUEST, "The profile of the member is too long.")
        records.append((encode_consumer_key(MEMBER_TYPE, group.group_id, request.member_id), value))
    changed = known is None or (profile is not known.profile and _subscription(profile) != _subscription(known.profile))
    # A member that takes another's place gives up its own.
    changed = changed or (replaced is not None and request.member_id in group.members)
    epoch, target = group.target_epoch, group.targets.get(request.member_id, NOTHING)
    readers = group.readers_with(request.member_id, request.reader)
    if changed or replaced is not None or not is_up_to_date(group, topics, readers):
        profiles = {member_id: each.profile for member_id, each in group.members.items() if member_id != replaced}
        profiles[request.member_id] = profile
        targets = dict(group.targets)
        if replaced is not None:
            targets[request.member_id] = targets.pop(replaced, NOTHING)
        epoch, targets = retarget(group, profiles, targets, readers, topics, records, now, changed=changed)
        target = targets.get(request.member_id, NOTHING)
    if replaced is not None:
        records.append((encode_consumer_key(TARGET_TYPE, group.group_id, request.member_id), encode_target(target)))
    own = (request.member_id, replaced)
    after = next_step(current, target, epoch, lambda share: group.held_by_others(share, own), request.owned)
    if after is not current:
        MEMBER_MOVES.moved(request.member_id, current.state, after.state)
    if after != group.current(request.member_id) or known is None or replaced is not None:
        records.append((encode_consumer_key(CURRENT_TYPE, group.group_id, request.member_id), encode_current(after)))
    asks = request.is_full or request.epoch == JOINING
    tell = asks or after.assigned != current.assigned or _has_not_heard(group, request, after.assigned)
    return HeartbeatAnswer(after.epoch, after.assigned if tell else None)


def _has_not_heard(group: ConsumerGroup, request: HeartbeatRequest, assigned: Share) -> bool:
    """True if the answer that changed the assignment may be lost. librdkafka does not ask for its assignment after a
    heartbeat without an answer: other members would wait for its partitions for a whole rebalance timeout."""
    if request.owned is not None:
        return request.owned != assigned
    return group.repeats_to(request.member_id)


def _changes_nothing(group: ConsumerGroup, request: HeartbeatRequest, topics: TopicView) -> bool:
    """True for the most frequent heartbeat, which is answered at once: the member has its target assignment and reports
    nothing new."""
    member = group.members.get(request.member_id)
    if member is None or not request.says_nothing or request.member_id in group.repeats:
        return False
    current, profile = group.current(request.member_id), member.profile
    return (
        request.epoch == current.epoch == group.target_epoch
        and current.state == MemberState.STABLE
        and group.checked_version == topics.version
        and group.readers.get(request.member_id) == request.reader
        and (request.client_id, request.client_host) == (profile.client_id, profile.client_host)
    )


def _check(group: ConsumerGroup, request: HeartbeatRequest, limits: ConsumerLimits) -> str | None:
    """Checks the request. Returns the id of the static member that this member replaces, if any."""
    if not is_short(request.member_id) or not is_short(request.instance_id or ""):
        raise ProtocolError(ErrorCode.INVALID_REQUEST, f"A member's id has at most {MAX_NAME_BYTES} bytes.")
    expression = request.expression
    if expression and expression not in group.expressions and len(group.expressions) >= MAX_EXPRESSIONS:
        raise ProtocolError(
            ErrorCode.INVALID_REGULAR_EXPRESSION, f"The group has {MAX_EXPRESSIONS} regular expressions already."
        )
    if request.assignor is not None and request.assignor not in ASSIGNORS:
        raise ProtocolError(
            ErrorCode.UNSUPPORTED_ASSIGNOR, f"The assignor {request.assignor} is not one of {', '.join(ASSIGNORS)}."
        )
    if request.epoch == JOINING:
        return _check_joining(group, request, limits)
    _check_known(group, request)
    if group.members[request.member_id].profile.classic is not None:
        raise ProtocolError(ErrorCode.FENCED_MEMBER_EPOCH, "The member speaks the classic protocol: join again.")
    current = group.current(request.member_id)
    if current.state is MemberState.UNKNOWN:
        raise ProtocolError(ErrorCode.FENCED_MEMBER_EPOCH, "A later version wrote the member's state: join again.")
    if request.epoch == current.epoch:
        return None
    # The answer with the new epoch may have been lost: the member then has its old partitions, or fewer.
    behind = request.epoch == current.previous_epoch and request.owned is not None
    if not behind or not (request.owned or NOTHING) <= current.assigned:
        raise ProtocolError(
            ErrorCode.FENCED_MEMBER_EPOCH, f"The member's epoch is {current.epoch}, not {request.epoch}: join again."
        )
    return None


def _check_known(group: ConsumerGroup, request: HeartbeatRequest) -> None:
    """Refuses unknown members. An instance id belongs to the last process that joined with it."""
    if request.instance_id is not None:
        known_as = group.static_members.get(request.instance_id)
        if known_as is not None and known_as != request.member_id:
            raise ProtocolError(ErrorCode.FENCED_INSTANCE_ID, f"{request.instance_id} belongs to another member now.")
        if known_as is None:
            raise ProtocolError(ErrorCode.UNKNOWN_MEMBER_ID, f"{request.instance_id} is no member's instance id.")
    if request.member_id not in group.members:
        raise ProtocolError(ErrorCode.UNKNOWN_MEMBER_ID, f"{request.member_id} is not a member of {group.group_id}.")


def is_short(name: str) -> bool:
    return len(name) * 4 <= MAX_NAME_BYTES or len(name.encode()) <= MAX_NAME_BYTES


def _check_joining(group: ConsumerGroup, request: HeartbeatRequest, limits: ConsumerLimits) -> str | None:
    if not request.subscribes or request.rebalance_timeout_ms < 0 or request.owned != NOTHING:
        raise ProtocolError(
            ErrorCode.INVALID_REQUEST,
            "A member that joins must name its topics and rebalance timeout, and cannot own partitions yet.",
        )
    if request.instance_id is not None:
        there = group.static_members.get(request.instance_id)
        if there is not None and there != request.member_id:
            # A member of the classic protocol cannot announce that it will be back: the next process takes its place.
            speaks_classic = group.members[there].profile.classic is not None
            if group.current(there).epoch != LEFT_FOR_A_WHILE and not speaks_classic:
                raise ProtocolError(
                    ErrorCode.UNRELEASED_INSTANCE_ID, f"{request.instance_id} is still in use by another member."
                )
            return there
    if request.member_id not in group.members and len(group.members) >= limits.max_size:
        raise ProtocolError(
            ErrorCode.GROUP_MAX_SIZE_REACHED,
            f"The group has {len(group.members)} members, and the broker takes no more (group.consumer.max.size, "
            "groups.members.max.bytes).",
        )
    return None


def updated(known: ConsumerMember | None, request: HeartbeatRequest) -> Profile:
    """The member's statements about itself, updated by this heartbeat, which mostly changes nothing."""
    before = NOBODY if known is None else known.profile
    if request.says_nothing and (request.client_id, request.client_host) == (before.client_id, before.client_host):
        return before
    return Profile(
        before.instance_id if request.instance_id is None else request.instance_id,
        before.rack_id if request.rack_id is None else request.rack_id,
        request.client_id,
        request.client_host,
        before.topics if request.topics is None else frozenset(request.topics),
        before.rebalance_timeout_ms if request.rebalance_timeout_ms < 0 else request.rebalance_timeout_ms,
        before.assignor if request.assignor is None else request.assignor,
        before.expression if request.expression is None else request.expression or None,
        request.classic,
    )


def _subscription(profile: Profile) -> tuple[object, ...]:
    """The parts of a member's statements that decide the target assignment."""
    return profile.topics, profile.expression, profile.assignor


# Leaving, and being taken out


def _leave(
    group: ConsumerGroup,
    request: HeartbeatRequest,
    topics: TopicView,
    records: list[Record],
    now: Moment,
    limits: ConsumerLimits,
) -> HeartbeatAnswer:
    _check_known(group, request)
    profile = group.members[request.member_id].profile
    if request.epoch == LEFT_FOR_A_WHILE and profile.instance_id is not None:
        current = group.current(request.member_id)
        since = since_within(current.since, current.assigned)
        state = MEMBER_MOVES.moved(request.member_id, current.state, MemberState.STABLE)
        away = Current(LEFT_FOR_A_WHILE, current.epoch, state, current.assigned, NOTHING, since)
        value = encode_current(away)
        records.append((encode_consumer_key(CURRENT_TYPE, group.group_id, request.member_id), value))
        return HeartbeatAnswer(LEFT_FOR_A_WHILE, None)
    remove(group, {request.member_id}, topics, records, now, limits.max_profile_bytes)
    return HeartbeatAnswer(LEAVING, None)


def take_out(
    group: ConsumerGroup,
    leaving: list[Leaving],
    topics: TopicView,
    records: list[Record],
    now: Moment,
    max_record_bytes: int,
) -> list[ErrorCode]:
    """Removes members that leave by the classic protocol, or that an administrator names; static members for good.

    Returns one error code for each.
    """
    errors: list[ErrorCode] = []
    gone: set[str] = set()
    for named, instance_id in leaving:
        member_id = named if instance_id is None else group.static_members.get(instance_id, "")
        if member_id not in group.members:
            errors.append(ErrorCode.UNKNOWN_MEMBER_ID)
        elif named not in ("", member_id):
            errors.append(ErrorCode.FENCED_INSTANCE_ID)
        else:
            errors.append(ErrorCode.NONE)
            gone.add(member_id)
    if gone:
        remove(group, gone, topics, records, now, max_record_bytes)
    return errors


def remove(
    group: ConsumerGroup,
    gone: set[str],
    topics: TopicView,
    records: list[Record],
    now: Moment,
    max_record_bytes: int,
) -> None:
    """Removes members and gives their partitions to the others. If all others speak the classic protocol, the group
    becomes classic and they rebalance themselves."""
    profiles = {member_id: each.profile for member_id, each in group.members.items() if member_id not in gone}
    downgraded = to_classic(group, profiles, topics, now, max_record_bytes)
    if downgraded:
        records += downgraded
        return
    for member_id in sorted(gone):
        records += group.member_tombstones(member_id)
    targets = {member_id: share for member_id, share in group.targets.items() if member_id not in gone}
    retarget(group, profiles, targets, group.readers, topics, records, now, changed=True)


# Time


def heard_of(group: ConsumerGroup, member_id: str, now: Moment, limits: ConsumerLimits) -> None:
    """Sets the deadlines of a member after replay. A member that keeps a partition beyond them would hold up all
    others."""
    member = group.members.get(member_id)
    if member is None:
        return
    classic = member.profile.classic
    session_timeout_ms = limits.session_timeout_ms if classic is None else classic.session_timeout_ms
    count_from(group, member_id, member, now, session_timeout_ms)


def count_from(
    group: ConsumerGroup, member_id: str, member: ConsumerMember, now: Moment, session_timeout_ms: int
) -> None:
    member.session_deadline_ms = group.wake_at(now.boot_ms + session_timeout_ms)
    revoking = group.current(member_id).revoking
    if revoking is not member.revoking and revoking != member.revoking:
        # A new revocation after an old one was confirmed has a whole timeout of its own.
        member.revoking = revoking
        member.revocation_deadline_ms = NEVER_MS
        if revoking:
            member.revocation_deadline_ms = group.wake_at(now.boot_ms + member.profile.rebalance_timeout_ms)


def time_passed(
    group: ConsumerGroup, topics: TopicView, records: list[Record], now: Moment, max_record_bytes: int
) -> None:
    late = set()
    group.wake_ms = NEVER_MS
    for member_id, member in group.members.items():
        deadline_ms = min(member.session_deadline_ms, member.revocation_deadline_ms, member.step_deadline_ms)
        if deadline_ms <= now.boot_ms:
            late.add(member_id)
        else:
            group.wake_at(deadline_ms)
    if late:
        remove(group, late, topics, records, now, max_record_bytes)


# Positions


def check_commit(
    group: ConsumerGroup, member_id: str, epoch: int, partitions: Callable[[], Share], *, knows_epochs: bool
) -> ErrorCode:
    """Checks that this member may commit positions in these partitions. A commit without a member id is allowed only if
    the group has no members.

    A member that does not know its newest epoch may commit in partitions that it has read since before the epoch that
    it names (KIP-1251). A member that still gives back partitions stays in its epoch until all are given back: it may
    not commit to a partition that another member reads by then.
    """
    if epoch < 0 and not group.members:
        return ErrorCode.NONE
    if member_id in group.members and not knows_epochs:
        return ErrorCode.UNSUPPORTED_VERSION
    refusal = _check_epoch(group, member_id, epoch)
    if refusal is ErrorCode.STALE_MEMBER_EPOCH:
        current = group.current(member_id)
        if 0 <= epoch < current.epoch and had_all_in(current.since, epoch, partitions()):
            return ErrorCode.NONE
    elif refusal is ErrorCode.NONE and len(group.members) > 1 and group.held_by_others(partitions(), (member_id,)):
        return ErrorCode.STALE_MEMBER_EPOCH
    return refusal


def check_fetch(group: ConsumerGroup, member_id: str, epoch: int) -> ErrorCode:
    """Checks a read of positions: any client may read, but one that names a member id has to be that member."""
    if epoch < 0 and not member_id:
        return ErrorCode.NONE
    return _check_epoch(group, member_id, epoch)


def _check_epoch(group: ConsumerGroup, member_id: str, epoch: int) -> ErrorCode:
    if member_id not in group.members:
        return ErrorCode.UNKNOWN_MEMBER_ID
    return ErrorCode.NONE if epoch == group.current(member_id).epoch else ErrorCode.STALE_MEMBER_EPOCH
