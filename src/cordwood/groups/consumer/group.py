"""A group of the consumer protocol: its state from the log, and its deadlines, which are in memory only."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from enum import Enum

from cordwood.groups.classic.group import NEVER_MS
from cordwood.groups.consumer.holdings import Holdings
from cordwood.groups.consumer.member import Current, MemberState, Profile
from cordwood.groups.consumer.partition_sets import NOTHING, Share, union
from cordwood.groups.consumer.records import (
    CURRENT_TYPE,
    EXPRESSION_TYPE,
    GROUP_TYPE,
    MEMBER_TYPE,
    TARGET_EPOCH_TYPE,
    TARGET_TYPE,
    GroupEpoch,
    RecordKey,
    Resolution,
    decode_current,
    decode_group_epoch,
    decode_profile,
    decode_resolution,
    decode_target,
    decode_target_epoch,
    encode_consumer_key,
)
from cordwood.groups.consumer.topics import Reader, Subscribed
from cordwood.groups.state.committed_positions import Record
from cordwood.groups.state.kept_bytes import KeptBytes
from cordwood.model.state_tables import Moves

LEFT_FOR_A_WHILE = -2
"""The epoch of a static member that will be back."""

REPEATS = 3
"""The number of answers that repeat a changed assignment to a member that does not report its partitions."""

FRESH = Current(0, 0, MemberState.STABLE, NOTHING, NOTHING, ())


class ConsumerGroupState(Enum):
    """The state of a group, by the names that Kafka's tools show. It follows from the group's members and epochs."""

    EMPTY = "Empty"
    ASSIGNING = "Assigning"
    RECONCILING = "Reconciling"
    STABLE = "Stable"


CONSUMER_GROUP_MOVES = Moves(
    "consumer group",
    {
        ConsumerGroupState.EMPTY: {
            ConsumerGroupState.ASSIGNING,
            ConsumerGroupState.RECONCILING,
            ConsumerGroupState.STABLE,
        },
        # The target is assigned in the append that raises the epoch. Kafka may assign it later, and write this state.
        ConsumerGroupState.ASSIGNING: (),
        ConsumerGroupState.RECONCILING: {ConsumerGroupState.ASSIGNING, ConsumerGroupState.STABLE},
        ConsumerGroupState.STABLE: {
            ConsumerGroupState.EMPTY,
            ConsumerGroupState.ASSIGNING,
            ConsumerGroupState.RECONCILING,
        },
    },
)
"""The moves from one append to the next. Nothing sets this state, so tests check the moves."""


@dataclass(slots=True, eq=False)
class ConsumerMember:
    profile: Profile
    profile_bytes: int = 0
    """The size of the member's record."""
    session_deadline_ms: int = NEVER_MS
    revocation_deadline_ms: int = NEVER_MS
    revoking: Share = NOTHING
    """The partitions that the member has to give back before the rebalance deadline."""
    step_deadline_ms: int = NEVER_MS
    """The time by which a member of the classic protocol has to join again, or to sync."""


@dataclass(slots=True, eq=False)
class ConsumerGroup:
    group_id: str
    epoch: int = 0
    metadata_hash: int = 0
    emptied_ms: int = -1
    """When the last member left; -1 if there are members, or if the time is unknown."""
    target_epoch: int = 0
    members: dict[str, ConsumerMember] = field(default_factory=dict)
    currents: dict[str, Current] = field(default_factory=dict)
    """Current assignments, apart from the members: in a compacted log this record may precede the member's own."""
    targets: dict[str, Share] = field(default_factory=dict)
    static_members: dict[str, str] = field(default_factory=dict)
    holdings: Holdings = field(default_factory=Holdings)
    """The holdings of all members, from their current assignments."""
    repeats: dict[str, int] = field(default_factory=dict)
    """How many more answers repeat a member's assignment, since the answer that changed it may be lost. In memory only;
    a new coordinator repeats all assignments."""
    expressions: dict[str, Resolution] = field(default_factory=dict)
    """The topics that each regular expression matches for any of the members."""
    readers: dict[str, Reader] = field(default_factory=dict)
    """The reader of each member that has one, since its last heartbeat. In memory only: a new coordinator assigns by
    `expressions` until it has heard of the member."""
    matches: dict[Subscribed, frozenset[str]] = field(default_factory=dict)
    """The topics by which the target was computed, in memory only. By default those of `expressions`."""
    next_matches: dict[Subscribed, frozenset[str]] = field(default_factory=dict)
    """The same for the target that is about to be written."""
    kept: KeptBytes = field(default_factory=KeptBytes)
    """The bytes of all groups of the shard."""
    wake_ms: int = NEVER_MS
    """A time that is not after the next deadline."""
    checked_version: tuple[int, int] | None = None
    """The version of the topics that the target was checked against; None: the target has to be checked."""
    _subscribed: frozenset[str] | None = None
    _subscriptions_in_use: frozenset[Subscribed] | None = None

    @property
    def state(self) -> ConsumerGroupState:
        if not self.members:
            return ConsumerGroupState.EMPTY
        if self.epoch > self.target_epoch:
            return ConsumerGroupState.ASSIGNING
        for current in map(self.current, self.members):
            if current.state != MemberState.STABLE or current.epoch != self.target_epoch:
                return ConsumerGroupState.RECONCILING
        return ConsumerGroupState.STABLE

    @property
    def subscribed_topics(self) -> frozenset[str]:
        if self._subscribed is None:
            read = {topics_of(each.profile, self.expressions) for each in self.members.values()}
            self._subscribed = frozenset[str]().union(*read)
        return self._subscribed

    @property
    def subscriptions_in_use(self) -> frozenset[Subscribed]:
        """The regular expressions of the members."""
        if self._subscriptions_in_use is None:
            profiles = {member_id: member.profile for member_id, member in self.members.items()}
            self._subscriptions_in_use = frozenset(subscriptions_of(profiles, self.readers))
        return self._subscriptions_in_use

    def matches_before(self, subscribed: Subscribed) -> frozenset[str] | None:
        """The topics by which the target was computed for this expression; None: it was not known."""
        stored = self.expressions.get(subscribed.expression)
        return self.matches.get(subscribed, None if stored is None else stored.topics)

    def readers_with(self, member_id: str, reader: Reader | None) -> Mapping[str, Reader]:
        """The readers of all members, once this member has this one."""
        if self.readers.get(member_id) == reader:
            return self.readers
        others = {each: theirs for each, theirs in self.readers.items() if each != member_id}
        return others if reader is None else {**others, member_id: reader}

    def read_by(self, member_id: str, reader: Reader | None) -> None:
        """Notes the reader of a member, if it is one."""
        if member_id in self.members and self.readers.get(member_id) != reader:
            self.readers = dict(self.readers_with(member_id, reader))
            self._subscriptions_in_use = self.checked_version = None

    def current(self, member_id: str) -> Current:
        return self.currents.get(member_id, FRESH)

    def held_by_others(self, share: Share, own: Collection[str | None]) -> Share:
        """The partitions of a share that are held by members other than the given ones."""
        held = self.holdings.among(share)
        if not held:
            return NOTHING
        if self.holdings.contested:
            return held & union(current.held for member_id, current in self.currents.items() if member_id not in own)
        for member_id in own:
            if member_id in self.currents:
                held -= self.currents[member_id].held
        return held

    def wake_at(self, deadline_ms: int) -> int:
        self.wake_ms = min(self.wake_ms, deadline_ms)
        return deadline_ms

    # The log

    def replay(self, key: RecordKey, value: bytes | None) -> None:
        member_id = key.subject
        if key.type != CURRENT_TYPE:
            self.checked_version = None
        if key.type == GROUP_TYPE:
            known = GroupEpoch(0, 0) if value is None else decode_group_epoch(value)
            self.epoch, self.metadata_hash, self.emptied_ms = known
        elif key.type == TARGET_EPOCH_TYPE:
            self.target_epoch = 0 if value is None else decode_target_epoch(value)
            self.matches, self.next_matches = self.next_matches, {}
        elif key.type == TARGET_TYPE:
            if value is None:
                self.targets.pop(member_id, None)
            else:
                self.targets[member_id] = decode_target(value)
        elif key.type == MEMBER_TYPE:
            size = 0 if value is None else len(value)
            self._replay_member(member_id, None if value is None else decode_profile(value), size)
        elif key.type == CURRENT_TYPE:
            self._replay_current(member_id, None if value is None else decode_current(value))
        elif key.type == EXPRESSION_TYPE:
            self._subscribed = None
            if value is None:
                self.expressions.pop(key.subject, None)
            else:
                self.expressions[key.subject] = decode_resolution(value)

    def forgotten(self) -> None:
        """Removes the group's members from the sums of the shard, which forgets the group."""
        self.kept.total -= sum(member.profile_bytes for member in self.members.values())

    def _replay_member(self, member_id: str, profile: Profile | None, size: int) -> None:
        known = self.members.get(member_id)
        self.kept.total += size - (0 if known is None else known.profile_bytes)
        self._subscribed = self._subscriptions_in_use = None
        if known is not None:
            # A member that stays may have joined again under another instance id.
            instance_id = known.profile.instance_id
            if instance_id is not None and self.static_members.get(instance_id) == member_id:
                del self.static_members[instance_id]
        if profile is None:
            self.members.pop(member_id, None)
            self.readers.pop(member_id, None)
            return
        if known is None:
            self.members[member_id] = ConsumerMember(profile, size)
        else:
            known.profile, known.profile_bytes = profile, size
            if profile.classic is None:
                known.step_deadline_ms = NEVER_MS  # the member may have changed its protocol
        if profile.instance_id is not None:
            self.static_members[profile.instance_id] = member_id

    def _replay_current(self, member_id: str, current: Current | None) -> None:
        before = self.currents.pop(member_id, FRESH)
        after = FRESH if current is None else current
        if after.held is not before.held:
            self.holdings.release(before.held)
            self.holdings.take(after.held)
        if current is None:
            self.repeats.pop(member_id, None)
            return
        self.currents[member_id] = current
        if after.assigned != before.assigned:
            self.repeats[member_id] = REPEATS

    def repeats_to(self, member_id: str) -> bool:
        """True if the next answer repeats the member's assignment; counts that answer."""
        left = self.repeats.pop(member_id, 0)
        if left > 1:
            self.repeats[member_id] = left - 1
        return left > 0

    def member_tombstones(self, member_id: str) -> list[Record]:
        return [
            (encode_consumer_key(kind, self.group_id, member_id), None)
            for kind in (CURRENT_TYPE, TARGET_TYPE, MEMBER_TYPE)
        ]

    def tombstones(self) -> list[Record]:
        """Tombstones for all records of the group."""
        members = sorted(self.members.keys() | self.currents.keys() | self.targets.keys())
        expressions = [(EXPRESSION_TYPE, expression) for expression in sorted(self.expressions)]
        return [
            *(tombstone for member_id in members for tombstone in self.member_tombstones(member_id)),
            *(
                (encode_consumer_key(kind, self.group_id, subject), None)
                for kind, subject in [*expressions, (TARGET_EPOCH_TYPE, ""), (GROUP_TYPE, "")]
            ),
        ]


def subscriptions_of(profiles: Mapping[str, Profile], readers: Mapping[str, Reader]) -> set[Subscribed]:
    """The regular expressions of these members."""
    return {
        Subscribed(profile.expression, readers.get(member_id))
        for member_id, profile in profiles.items()
        if profile.expression is not None
    }


def topics_of(profile: Profile, expressions: Mapping[str, Resolution]) -> frozenset[str]:
    """The topics that a member may read: those that it names, and the matches of its expression for any member."""
    resolution = None if profile.expression is None else expressions.get(profile.expression)
    if resolution is None:
        return profile.topics
    return profile.topics | resolution.topics if profile.topics else resolution.topics
