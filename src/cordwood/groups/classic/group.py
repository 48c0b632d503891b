"""A group of the classic protocol: its state, its members, and queries. Transitions have modules of their own."""

from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple

from cordwood.groups.classic.outbox import JoinTicket, SyncTicket
from cordwood.groups.classic.records import StoredGroup, StoredMember
from cordwood.groups.classic.subscription import subscribed_topics
from cordwood.groups.state.kept_bytes import KeptBytes
from cordwood.model.coordination import MAX_NAME_BYTES as MAX_NAME_BYTES
from cordwood.model.errors import ErrorCode
from cordwood.model.moment import Moment
from cordwood.model.state_tables import Moves

NEVER_MS = 1 << 62
CONSUMER_PROTOCOL_TYPE = "consumer"


class State(Enum):
    """The state of a group, by the names that Kafka's tools show. A group that does not exist is Dead."""

    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


CLASSIC_GROUP_MOVES = Moves(
    "classic group",
    {
        State.EMPTY: {State.PREPARING_REBALANCE},
        State.PREPARING_REBALANCE: {State.EMPTY, State.COMPLETING_REBALANCE, State.STABLE},
        State.COMPLETING_REBALANCE: {State.PREPARING_REBALANCE},
        State.STABLE: {State.COMPLETING_REBALANCE},
        # An empty group may be deleted. A classic group in any state ends when it changes its protocol.
        State.DEAD: {State.EMPTY, State.PREPARING_REBALANCE, State.COMPLETING_REBALANCE, State.STABLE},
    },
)


class Limits(NamedTuple):
    """Bounds on groups, from the broker's settings."""

    max_size: int
    min_session_timeout_ms: int
    max_session_timeout_ms: int
    initial_rebalance_delay_ms: int
    max_metadata_bytes: int
    """The largest record of a group."""
    max_member_bytes: int
    """The most bytes of one member's protocols: fewer if members of all groups have the broker keep very many."""


@dataclass(slots=True, eq=False)
class Member:
    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocols: tuple[tuple[str, bytes], ...]
    assignment: bytes = b""
    session_deadline_ms: int = NEVER_MS
    is_new: bool = False
    """True while the member waits for its first round. It cannot send heartbeats yet, so it gets more time, once."""
    join_ticket: JoinTicket | None = None
    sync_ticket: SyncTicket | None = None

    def take_stored(self, stored: "Member", protocol: str | None) -> None:
        """Takes over the member's state from the log. The record holds one protocol: if its metadata equals the one
        known here, the other protocols known here are still valid, too."""
        self.instance_id = stored.instance_id
        self.client_id, self.client_host = stored.client_id, stored.client_host
        self.session_timeout_ms = stored.session_timeout_ms
        self.rebalance_timeout_ms = stored.rebalance_timeout_ms
        self.assignment = stored.assignment
        if self.metadata(protocol) != stored.metadata(protocol or ""):
            self.protocols = stored.protocols

    @property
    def protocol_names(self) -> frozenset[str]:
        return frozenset([name for name, _ in self.protocols])

    @property
    def kept_bytes(self) -> int:
        names = len(self.member_id) + len(self.client_id) + len(self.client_host)
        return names + len(self.assignment) + sum(len(name) + len(metadata) for name, metadata in self.protocols)

    def metadata(self, protocol: str | None) -> bytes:
        return next((metadata for name, metadata in self.protocols if name == protocol), b"")


@dataclass(slots=True, eq=False)
class Group:
    group_id: str
    state: State = State.EMPTY
    generation: int = 0
    protocol_type: str = ""
    protocol: str | None = None
    leader: str | None = None
    state_timestamp_ms: int = -1
    members: dict[str, Member] = field(default_factory=dict)
    static_members: dict[str, str] = field(default_factory=dict)
    """Member ids by instance id."""
    pending: dict[str, int] = field(default_factory=dict)
    """Deadlines of member ids that were given out and not used yet."""
    pending_sync: set[str] = field(default_factory=set)
    join_deadline_ms: int = NEVER_MS
    sync_deadline_ms: int = NEVER_MS
    gathering_left_ms: int | None = None
    """How much longer the first round of an empty group may be put off for new members; None in other rounds."""
    newcomer_in_round: bool = False
    wake_ms: int = NEVER_MS
    """A time that is not after the next deadline. Heartbeats postpone deadlines: this time may be too early."""
    kept: KeptBytes = field(default_factory=KeptBytes)
    """The bytes of all groups of the shard."""
    _kept_bytes: int = 0
    _joined_count: int = 0
    """The number of members that have joined the round, kept because a round of many members is many requests."""
    _supporters: dict[str, int] = field(default_factory=dict)
    """The number of members that support each protocol."""

    @property
    def rebalance_timeout_ms(self) -> int:
        return max((member.rebalance_timeout_ms for member in self.members.values()), default=0)

    @property
    def all_joined(self) -> bool:
        return not self.pending and self._joined_count == len(self.members)

    def has_joined(self, member: Member, ticket: JoinTicket | None) -> None:
        """Sets the member's JoinGroup request that waits for the end of the round; None: no request waits."""
        self._joined_count += (ticket is not None) - (member.join_ticket is not None)
        member.join_ticket = ticket

    def moved_to(self, state: State) -> State:
        """The new state, checked against the moves from the present one."""
        return CLASSIC_GROUP_MOVES.moved(self.group_id, self.state, state)

    def move_to(self, state: State, now: Moment) -> None:
        self.state = self.moved_to(state)
        self.state_timestamp_ms = now.wall_ms

    def wake_at(self, deadline_ms: int) -> int:
        self.wake_ms = min(self.wake_ms, deadline_ms)
        return deadline_ms

    def heard_of(self, member: Member, now: Moment) -> None:
        member.session_deadline_ms = self.wake_at(now.boot_ms + member.session_timeout_ms)

    def add(self, member: Member, protocol_type: str) -> None:
        if not self.members:
            self.protocol_type = protocol_type
        self.members[member.member_id] = member
        self._count(member, 1)
        if member.instance_id is not None:
            self.static_members[member.instance_id] = member.member_id
        if self.leader is None:
            self.leader = member.member_id

    def take_out(self, member: Member) -> None:
        del self.members[member.member_id]
        self._count(member, -1)
        if member.instance_id is not None and self.static_members.get(member.instance_id) == member.member_id:
            del self.static_members[member.instance_id]
        self.pending_sync.discard(member.member_id)
        if self.leader == member.member_id:
            self.leader = next(iter(self.members), None)

    def rename(self, member: Member, member_id: str) -> None:
        """Gives a static member that came back its new member id."""
        assert member.instance_id is not None
        # Rebuilt in place, so that the order of members, which decides the next leader, stays the same.
        self.members = {
            member_id if known == member.member_id else known: other for known, other in self.members.items()
        }
        if member.member_id in self.pending_sync:
            self.pending_sync.remove(member.member_id)
            self.pending_sync.add(member_id)
        if self.leader == member.member_id:
            self.leader = member_id
        self.static_members[member.instance_id] = member_id
        member.member_id = member_id

    # Protocols

    def supports(self, protocol_type: str, names: list[str], *, but: str = "") -> bool:
        """True if a member with these protocols shares one with all other members; `but` is the id of the asking
        member."""
        if not protocol_type or not names:
            return False
        itself = self.members.get(but)
        others = len(self.members) - (itself is not None)
        if not others:
            return True
        own = () if itself is None else itself.protocol_names
        supporters = self._supporters
        return protocol_type == self.protocol_type and any(
            supporters.get(name, 0) - (name in own) == others for name in names
        )

    def take_terms(
        self, member: Member, protocols: tuple[tuple[str, bytes], ...], client_id: str, client_host: str
    ) -> None:
        terms = (protocols, client_id, client_host)
        if terms != (member.protocols, member.client_id, member.client_host):
            self._count(member, -1)
            member.protocols, member.client_id, member.client_host = terms
            self._count(member, 1)

    def _count(self, member: Member, by: int) -> None:
        """Adds (1) or removes (-1) a member in the counts of protocols, of joined members and of kept bytes."""
        self._keep(by * member.kept_bytes)
        self._joined_count += by * (member.join_ticket is not None)
        for name in member.protocol_names:
            count = self._supporters.get(name, 0) + by
            if count:
                self._supporters[name] = count
            else:
                del self._supporters[name]

    def _keep(self, by: int) -> None:
        self._kept_bytes += by
        self.kept.total += by

    def forgotten(self) -> None:
        """Removes the group's members from the sums of the shard, which forgets the group."""
        self._keep(-self._kept_bytes)

    def select_protocol(self) -> str:
        """Selects the protocol with the most votes; a member votes for the first protocol in its list that all know."""
        candidates = {name for name, count in self._supporters.items() if count == len(self.members)}
        votes = dict.fromkeys(candidates, 0)
        for member in self.members.values():
            votes[next(name for name, _ in member.protocols if name in candidates)] += 1
        return min(votes, key=lambda name: (-votes[name], name))

    def subscribes_to(self, topic: str) -> bool:
        """True if a member reads this topic. A group whose subscriptions cannot be decoded may read any topic."""
        if self.protocol is None:
            return self.protocol_type == CONSUMER_PROTOCOL_TYPE and bool(self.members)
        for member in self.members.values():
            topics = subscribed_topics(member.metadata(self.protocol))
            if topics is None or topic in topics:
                return True
        return False

    def readable_subscriptions(self) -> frozenset[str]:
        """The topics of members with decodable subscriptions."""
        if self.protocol is None:
            return frozenset()
        each = (subscribed_topics(member.metadata(self.protocol)) for member in self.members.values())
        return frozenset(topic for topics in each if topics is not None for topic in topics)

    # The log

    def stored(self, assignments: dict[str, bytes] | None = None) -> StoredGroup:
        """The group for its record in the log, with new assignments if given."""
        return StoredGroup(
            self.protocol_type,
            self.generation,
            self.protocol,
            self.leader,
            self.state_timestamp_ms,
            tuple(
                StoredMember(
                    member.member_id,
                    member.instance_id,
                    member.client_id,
                    member.client_host,
                    member.rebalance_timeout_ms,
                    member.session_timeout_ms,
                    member.metadata(self.protocol),
                    member.assignment if assignments is None else assignments.get(member.member_id, b""),
                )
                for member in self.members.values()
            ),
        )

    def restore(self, stored: StoredGroup) -> None:
        """Replays a record of the log into state. Known members keep their soft state.

        The move was checked when the record was made; a record of the log that is loaded may hold any state."""
        known = self.members
        self.members, self.static_members = {}, {}
        self._joined_count, self._supporters = 0, {}
        self._keep(-self._kept_bytes)
        for kept in stored.members:
            restored = Member(
                kept.member_id,
                kept.instance_id,
                kept.client_id,
                kept.client_host,
                kept.session_timeout_ms,
                kept.rebalance_timeout_ms,
                ((stored.protocol or "", kept.subscription),),
                kept.assignment,
            )
            member = known.get(kept.member_id, restored)
            member.take_stored(restored, stored.protocol)
            self.members[member.member_id] = member
            self._count(member, 1)
            if member.instance_id is not None:
                self.static_members[member.instance_id] = member.member_id
        self.pending_sync.intersection_update(self.members)
        self.protocol_type = stored.protocol_type
        self.generation = stored.generation
        self.protocol = stored.protocol
        self.leader = stored.leader
        self.state = State.STABLE if self.members else State.EMPTY
        if self.members and self.leader is None:
            # The members come from a group of the consumer protocol, and need a round of their own.
            self.state = State.PREPARING_REBALANCE
        self.state_timestamp_ms = stored.state_timestamp_ms


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
