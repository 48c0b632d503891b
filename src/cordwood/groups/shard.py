"""One partition of __consumer_offsets: groups with members, and committed positions.

The coordinator's contract: a request yields records and answers; state changes only when those records are replayed, at
append; answers wait until the records are committed.
"""

from collections.abc import Callable, Collection, Iterator
from itertools import chain
from typing import NamedTuple

from cordwood.groups.classic.expiry import after_loading, refuse_all, time_passed
from cordwood.groups.classic.group import CONSUMER_PROTOCOL_TYPE, NEVER_MS, Group, Limits, State
from cordwood.groups.classic.heartbeat import check_commit, heartbeat, may_wait_ms, standing
from cordwood.groups.classic.join import JoinRequest, join
from cordwood.groups.classic.leave import Leaving, leave
from cordwood.groups.classic.outbox import JoinAnswer, JoinTicket, Outbox, SyncTicket
from cordwood.groups.classic.records import (
    GROUP_METADATA_KEY_TYPE,
    decode_group,
    decode_group_key,
    encode_group_key,
)
from cordwood.groups.classic.sync import SyncRequest, not_written, sync
from cordwood.groups.consumer import classic_members
from cordwood.groups.consumer import heartbeat as consumer_protocol
from cordwood.groups.consumer.group import ConsumerGroup
from cordwood.groups.consumer.heartbeat import ConsumerLimits, HeartbeatAnswer, HeartbeatRequest
from cordwood.groups.consumer.migration import emptied_to_classic, to_consumer, why_not_known
from cordwood.groups.consumer.partition_sets import NOTHING, Share
from cordwood.groups.consumer.records import CONSUMER_GROUP_KEY_TYPES, GROUP_TYPE, MEMBER_TYPE, decode_consumer_key
from cordwood.groups.consumer.topics import NoTopics, Subscribed, TopicView
from cordwood.groups.state.committed_positions import Positions, Record, is_current
from cordwood.groups.state.kept_bytes import KeptBytes
from cordwood.groups.state.offset_records import OFFSET_COMMIT_KEY_TYPES, Position, encode_key, record_type
from cordwood.model.errors import ErrorCode, ProtocolError
from cordwood.model.identifiers import TopicId, TopicPartition
from cordwood.model.moment import Moment

CLASSIC_KIND = "classic"
CONSUMER_KIND = "consumer"

NO_PARTITIONS: frozenset[TopicPartition] = frozenset()

POSITIONS_PER_PAUSE = 20

LOOK_AGAIN_MS = 1_000
"""How long deadlines are put off after the log refused records."""


class GroupListing(NamedTuple):
    group_id: str
    protocol_type: str
    state: str
    kind: str
    """The protocol of the group: classic or consumer, as Kafka writes it."""


class GroupShard:
    """Groups by name. A group without members that only commits positions has no `Group`: it is just its positions."""

    def __init__(self, topics: TopicView | None = None) -> None:
        self.positions = Positions()
        self.groups: dict[str, Group] = {}
        self.consumer_groups: dict[str, ConsumerGroup] = {}
        self.kept = KeptBytes()
        self._topics: TopicView = NoTopics() if topics is None else topics
        self._unheard: set[str] = set()
        """Groups with members whose deadlines may not be set yet: they came by a record, or joined again."""

    def replay(self, key: bytes, value: bytes | None) -> None:
        """Replays a record of the log into state. Record types that this broker never writes are skipped."""
        kind = record_type(key)
        if kind in OFFSET_COMMIT_KEY_TYPES:
            self.positions.replay(key, value)
        elif kind in CONSUMER_GROUP_KEY_TYPES:
            self._replay_consumer_group(key, value)
        elif kind == GROUP_METADATA_KEY_TYPE:
            self._replay_group(decode_group_key(key), value)

    def _replay_group(self, group_id: str, value: bytes | None) -> None:
        if value is None:
            if (gone := self.groups.pop(group_id, None)) is not None:
                gone.forgotten()
        else:
            group = self.groups.get(group_id)
            if group is None:
                group = self.groups[group_id] = Group(group_id, kept=self.kept)
            group.restore(decode_group(value))
            if group.state is State.PREPARING_REBALANCE:
                self._unheard.add(group_id)

    def _replay_consumer_group(self, key: bytes, value: bytes | None) -> None:
        named = decode_consumer_key(key)
        group = self.consumer_groups.get(named.group_id)
        if group is None:
            if value is None:
                return
            group = self.consumer_groups[named.group_id] = ConsumerGroup(named.group_id, kept=self.kept)
        group.replay(named, value)
        if named.type == MEMBER_TYPE and value is not None:
            self._unheard.add(named.group_id)
        if named.type == GROUP_TYPE and value is None:
            group.forgotten()
            del self.consumer_groups[named.group_id]

    def after_loading(self, now: Moment, limits: Callable[[str], ConsumerLimits]) -> None:
        """Sets the deadlines of all groups after the log was read. `limits` gives the limits of a group."""
        for group in self.groups.values():
            after_loading(group, now)
        for group_id, consumer_group in self.consumer_groups.items():
            bounds = limits(group_id)
            for member_id in consumer_group.members:
                consumer_protocol.heard_of(consumer_group, member_id, now, bounds)
        self._unheard.clear()

    def after_writing(self, group_id: str, now: Moment, limits: Callable[[str], ConsumerLimits]) -> None:
        """Called after every transition, when its records are replayed: sets the deadlines of members that have a step
        to take."""
        if group_id not in self._unheard:
            return
        self._unheard.discard(group_id)
        bounds = limits(group_id)
        group = self.groups.get(group_id)
        if group is not None:
            after_loading(group, now)
        consumer_group = self.consumer_groups.get(group_id)
        if consumer_group is not None:
            for member_id, member in consumer_group.members.items():
                if member.session_deadline_ms == NEVER_MS:
                    consumer_protocol.heard_of(consumer_group, member_id, now, bounds)
                    if member.profile.classic is not None:
                        classic_members.has_to_act(consumer_group, member, now)

    def wake_ms(self, group_id: str) -> int:
        """A time that is not after the next deadline of this group."""
        group = self.groups.get(group_id) or self.consumer_groups.get(group_id)
        return NEVER_MS if group is None else group.wake_ms

    def group_ids(self) -> list[str]:
        """Each group once, in the order of the log: sorting a hundred thousand takes too long."""
        return list(dict.fromkeys(chain(self.groups, self.consumer_groups, self.positions.groups())))

    def exists(self, group_id: str) -> bool:
        has_members = group_id in self.groups or group_id in self.consumer_groups
        return has_members or bool(self.positions.of_group(group_id))

    def at_least(self) -> int:
        """A lower bound of the number of groups, at least half of it, without counting all."""
        return max(len(self.groups) + len(self.consumer_groups), len(self.positions))

    # The classic protocol

    def to_classic(self, group_id: str) -> list[Record]:
        """The records that convert an empty group of the consumer protocol to a classic one; none if it has members or
        is no such group."""
        group = self.consumer_groups.get(group_id)
        return [] if group is None or group.members else emptied_to_classic(group)

    def join(
        self, group_id: str, request: JoinRequest, ticket: JoinTicket, out: Outbox, now: Moment, limits: Limits
    ) -> None:
        group = self.groups.get(group_id)
        consumer_group = self.consumer_groups.get(group_id)
        if consumer_group is not None and consumer_group.members:
            self._unheard.add(group_id)
            classic_members.join(consumer_group, request, ticket, self._topics, out, now, limits)
            return
        if group is None:
            if request.member_id:
                out.joins.append((ticket, JoinAnswer(ErrorCode.UNKNOWN_MEMBER_ID, request.member_id)))
                return
            group = self.groups[group_id] = Group(group_id, kept=self.kept)
        join(group, request, ticket, out, now, limits)
        self._forget_if_blank(group)

    def sync(
        self, group_id: str, request: SyncRequest, ticket: SyncTicket, out: Outbox, now: Moment, limits: Limits
    ) -> None:
        consumer_group = self.consumer_groups.get(group_id)
        if consumer_group is not None:
            out.syncs.append((ticket, classic_members.sync(consumer_group, request, self._topics, now)))
            return
        sync(self.groups.get(group_id), request, ticket, out, now, limits)

    def not_written(self, group_id: str, out: Outbox, now: Moment, limits: Limits) -> None:
        not_written(self.groups.get(group_id), out, now, limits)
        consumer_group = self.consumer_groups.get(group_id)
        if consumer_group is not None:
            # A member that missed its deadline is still there, and perhaps no other request makes time pass again.
            consumer_group.wake_at(now.boot_ms + LOOK_AGAIN_MS)

    def heartbeat(
        self, group_id: str, member_id: str, instance_id: str | None, generation: int, now: Moment
    ) -> ErrorCode:
        consumer_group = self.consumer_groups.get(group_id)
        if consumer_group is not None:
            return classic_members.heartbeat(consumer_group, member_id, instance_id, generation, self._topics, now)
        return heartbeat(self.groups.get(group_id), member_id, instance_id, generation, now)

    def standing(self, group_id: str, member_id: str, instance_id: str | None, generation: int) -> ErrorCode:
        consumer_group = self.consumer_groups.get(group_id)
        if consumer_group is not None:
            return classic_members.standing(consumer_group, member_id, instance_id, generation, self._topics)
        return standing(self.groups.get(group_id), member_id, instance_id, generation)

    def may_wait_ms(self, group_id: str, member_id: str) -> int:
        consumer_group = self.consumer_groups.get(group_id)
        if consumer_group is not None:
            return classic_members.may_wait_ms(consumer_group, member_id)
        return may_wait_ms(self.groups.get(group_id), member_id)

    def leave(self, group_id: str, leaving: list[Leaving], out: Outbox, now: Moment, limits: Limits) -> list[ErrorCode]:
        consumer_group = self.consumer_groups.get(group_id)
        if consumer_group is not None:
            return consumer_protocol.take_out(
                consumer_group, leaving, self._topics, out.records, now, limits.max_metadata_bytes
            )
        group = self.groups.get(group_id)
        errors = leave(group, leaving, out, now, limits)
        if group is not None:
            self._forget_if_blank(group)
        return errors

    def time_passed(self, group_id: str, out: Outbox, now: Moment, limits: Limits) -> None:
        group = self.groups.get(group_id)
        if group is not None:
            time_passed(group, out, now, limits)
            self._forget_if_blank(group)
        consumer_group = self.consumer_groups.get(group_id)
        if consumer_group is not None:
            consumer_protocol.time_passed(consumer_group, self._topics, out.records, now, limits.max_metadata_bytes)

    def check_commit(
        self,
        group_id: str,
        member_id: str,
        instance_id: str | None,
        generation: int,
        now: Moment,
        *,
        partitions: Callable[[], Share] = lambda: NOTHING,
        transactional: bool = False,
        knows_epochs: bool = True,
    ) -> ErrorCode:
        """Checks that this member may commit positions. A group that does not exist has no generations to name.

        `partitions` tells the partitions, and is called only if they matter. `knows_epochs`: the client's version of
        the request is one that members of the consumer protocol use.
        """
        if transactional and (member_id, instance_id, generation) == ("", None, -1):
            # Older clients do not name a member, and are believed, as by Kafka.
            return ErrorCode.NONE
        consumer_group = self.consumer_groups.get(group_id)
        if consumer_group is not None:
            member = consumer_group.members.get(member_id)
            if member is not None and member.profile.classic is not None:
                return classic_members.check_commit(consumer_group, member_id, instance_id, generation, partitions)
            return consumer_protocol.check_commit(
                consumer_group, member_id, generation, partitions, knows_epochs=knows_epochs
            )
        if generation >= 0 and not self.exists(group_id):
            return ErrorCode.GROUP_ID_NOT_FOUND
        group = self.groups.get(group_id)
        return check_commit(group, member_id, instance_id, generation, now, transactional=transactional)

    def check_fetch(self, group_id: str, member_id: str, epoch: int) -> ErrorCode:
        """Checks the member of an OffsetFetch; only members of the consumer protocol name themselves."""
        group = self.consumer_groups.get(group_id)
        if group is None:
            return ErrorCode.NONE
        return consumer_protocol.check_fetch(group, member_id, epoch)

    def refuse_all(self, out: Outbox, reason: ErrorCode) -> None:
        for group in self.groups.values():
            refuse_all(group, out, reason)

    def _forget_if_blank(self, group: Group) -> None:
        """Forgets a group that never had a generation or a position: the log has no record of it."""
        if group.state is State.EMPTY and not group.generation and not group.pending:
            group.moved_to(State.DEAD)
            group.forgotten()
            del self.groups[group.group_id]

    # The consumer protocol

    def consumer_heartbeat(
        self, group_id: str, request: HeartbeatRequest, out: Outbox, limits: ConsumerLimits, now: Moment
    ) -> HeartbeatAnswer:
        """Handles a heartbeat of the consumer protocol. Raises ProtocolError. The caller calls `consumer_heard_of` when
        the records are replayed."""
        group = self.consumer_groups.get(group_id)
        if group is not None:
            return consumer_protocol.heartbeat(group, request, self._topics, out.records, limits, now)
        classic = self.groups.get(group_id)
        if request.epoch != consumer_protocol.JOINING:
            refusal = why_not_known(classic, request.member_id, request.instance_id, request.epoch)
            raise ProtocolError(refusal, f"{group_id} is not a group of the consumer protocol (any more).")
        group = ConsumerGroup(group_id)
        if classic is not None:
            out.records += to_consumer(classic, self._topics, limits.max_size, limits.max_profile_bytes)
            for key, value in out.records[1:]:
                group.replay(decode_consumer_key(key), value)
        answer = consumer_protocol.heartbeat(group, request, self._topics, out.records, limits, now)
        if classic is not None:
            refuse_all(classic, out, ErrorCode.REBALANCE_IN_PROGRESS)
        return answer

    def subscriptions(self, group_id: str, request: HeartbeatRequest) -> frozenset[Subscribed]:
        """The regular expressions that this heartbeat may have to resolve."""
        group = self.consumer_groups.get(group_id)
        found: frozenset[Subscribed] = frozenset() if group is None else group.subscriptions_in_use
        expression = request.expression
        if expression is None and group is not None and request.member_id in group.members:
            expression = group.members[request.member_id].profile.expression
        asked = Subscribed(expression, request.reader) if expression else None
        return found if asked is None or asked in found else found | {asked}

    def consumer_heard_of(self, group_id: str, request: HeartbeatRequest, now: Moment, limits: ConsumerLimits) -> None:
        group = self.consumer_groups.get(group_id)
        if group is not None:
            group.read_by(request.member_id, request.reader)
            consumer_protocol.heard_of(group, request.member_id, now, limits)

    # Administration

    def listed(self, group_id: str) -> GroupListing:
        """One line of a list of all groups."""
        consumer_group = self.consumer_groups.get(group_id)
        if consumer_group is not None:
            return GroupListing(group_id, CONSUMER_PROTOCOL_TYPE, consumer_group.state.value, CONSUMER_KIND)
        group = self.groups.get(group_id)
        if group is None:
            return GroupListing(group_id, "", State.EMPTY.value, CLASSIC_KIND)
        return GroupListing(group_id, group.protocol_type, group.state.value, CLASSIC_KIND)

    def watched_positions(
        self, group_id: str, partition_count: Callable[[str], int]
    ) -> Iterator[tuple[TopicPartition, int | None] | None]:
        """Yields the group's position by partition, and None alone for a pause. A partition without a position has None
        as offset if the group's members read its topic, or if the group has a position in the topic: such a partition
        can lose records, even while the group has no members. A text that was committed with a negative offset is no
        position."""
        positions = self.positions.of_group(group_id)
        topics = set(self._read_topics(group_id))
        for number, (partition, position) in enumerate(list(positions.items())):
            if partition.topic not in topics and self._is_position(partition, position):
                topics.add(partition.topic)
            if number % POSITIONS_PER_PAUSE == 0:
                yield None
        for topic in sorted(topics):
            for index in range(partition_count(topic)):
                name = TopicPartition(topic, index)
                found = positions.get(name)
                yield name, found.offset if found is not None and self._is_position(name, found) else None

    def _is_position(self, partition: TopicPartition, position: Position) -> bool:
        return position.offset >= 0 and is_current(partition, position, self._topic_id_of)

    def positions_of(self, group_id: str) -> dict[TopicPartition, Position]:
        """The positions of a group, without those in an earlier topic of the same name."""
        found = self.positions.of_group(group_id)
        return {
            partition: position
            for partition, position in found.items()
            if is_current(partition, position, self._topic_id_of)
        }

    def _topic_id_of(self, topic: str) -> TopicId | None:
        shape = self._topics.shape_of(topic)
        return None if shape is None else shape.topic_id

    def _read_topics(self, group_id: str) -> frozenset[str]:
        consumer_group = self.consumer_groups.get(group_id)
        if consumer_group is not None:
            return consumer_group.subscribed_topics
        group = self.groups.get(group_id)
        return frozenset() if group is None else group.readable_subscriptions()

    def describe(self, group_id: str) -> Group | None:
        """The classic group. The caller must not change it."""
        group = self.groups.get(group_id)
        if group is None and group_id not in self.consumer_groups and self.positions.of_group(group_id):
            return Group(group_id)
        return group

    def delete(self, group_id: str, out: Outbox, pending: frozenset[TopicPartition] = NO_PARTITIONS) -> ErrorCode:
        """Deletes a group. `pending` has the partitions with positions of the group in open transactions, whose commits
        would bring it back."""
        if not pending and not self.exists(group_id):
            return ErrorCode.GROUP_ID_NOT_FOUND
        if not self._is_idle(group_id):
            return ErrorCode.NON_EMPTY_GROUP
        out.records += self._tombstones(group_id, sorted(pending.union(self.positions.of_group(group_id))))
        out.records += self._group_tombstones(group_id)
        return ErrorCode.NONE

    def delete_positions(
        self,
        group_id: str,
        partitions: list[TopicPartition],
        out: Outbox,
        pending: frozenset[TopicPartition] = NO_PARTITIONS,
    ) -> ErrorCode | list[ErrorCode]:
        """Deletes positions.

        Returns one error code for each, or one for all if the group cannot lose positions. `pending` has the partitions
        with positions in open transactions, which are deleted, too, as in Kafka.
        """
        if not pending and not self.exists(group_id):
            return ErrorCode.GROUP_ID_NOT_FOUND
        group = self.groups.get(group_id)
        if group is not None and _has_members(group) and group.protocol_type != CONSUMER_PROTOCOL_TYPE:
            return ErrorCode.NON_EMPTY_GROUP
        errors = []
        known = self.positions.of_group(group_id)
        for partition in partitions:
            if self._reads(group_id, partition.topic):
                errors.append(ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC)
                continue
            errors.append(ErrorCode.NONE)
            if partition in known or partition in pending:
                out.records += self._tombstones(group_id, [partition])
        return errors

    def expired(self, group_id: str, partitions: Collection[TopicPartition], wall_ms: int, ttl_ms: int) -> list[Record]:
        """Tombstones for positions of a group, among these partitions, that have outlived the retention or their topic;
        and for the group, if it has no other positions and no members.

        A group with members keeps the positions of the topics that it reads, however old. A group that lost its members
        keeps its positions for the retention from then on. A position with a time to live of its own expires by that
        alone.
        """
        positions = self.positions.of_group(group_id)
        gone = [
            partition
            for partition in partitions
            if (position := positions.get(partition)) is not None
            and (
                not is_current(partition, position, self._topic_id_of)
                or self._is_expired(group_id, partition, position, wall_ms, ttl_ms)
            )
        ]
        records = self._tombstones(group_id, gone)
        if len(gone) == len(positions) and self._is_idle(group_id):
            records += self._group_tombstones(group_id)
        return records

    def _is_expired(
        self, group_id: str, partition: TopicPartition, position: Position, wall_ms: int, retention_ms: int
    ) -> bool:
        if position.expire_timestamp_ms >= 0:
            return position.expire_timestamp_ms <= wall_ms
        needed_ms = position.commit_timestamp_ms
        group = self.groups.get(group_id)
        if group is not None:
            if group.state is State.EMPTY:
                needed_ms = max(needed_ms, group.state_timestamp_ms)
            elif group.state is not State.STABLE:
                return False
        consumer_group = self.consumer_groups.get(group_id)
        if consumer_group is not None:
            needed_ms = max(needed_ms, consumer_group.emptied_ms)
        return needed_ms + retention_ms <= wall_ms and not self._reads(group_id, partition.topic)

    def _is_idle(self, group_id: str) -> bool:
        group = self.groups.get(group_id)
        consumer_group = self.consumer_groups.get(group_id)
        return (group is None or not _has_members(group)) and (consumer_group is None or not consumer_group.members)

    def _reads(self, group_id: str, topic: str) -> bool:
        group = self.groups.get(group_id)
        if group is not None and _has_members(group) and group.subscribes_to(topic):
            return True
        consumer_group = self.consumer_groups.get(group_id)
        return consumer_group is not None and topic in consumer_group.subscribed_topics

    def _group_tombstones(self, group_id: str) -> list[Record]:
        records: list[Record] = []
        if group_id in self.groups:
            self.groups[group_id].moved_to(State.DEAD)
            records.append((encode_group_key(group_id), None))
        if group_id in self.consumer_groups:
            records += self.consumer_groups[group_id].tombstones()
        return records

    @staticmethod
    def _tombstones(group_id: str, partitions: list[TopicPartition]) -> list[Record]:
        return [(encode_key(group_id, partition), None) for partition in partitions]


def _has_members(group: Group) -> bool:
    """True if the group has members, or is about to have some."""
    return group.state is not State.EMPTY or bool(group.pending)
