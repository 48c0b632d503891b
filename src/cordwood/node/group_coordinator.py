"""The coordinator of groups on this node: one `GroupShard` per partition of __consumer_offsets, and its alarms.

Every answer waits until all that its shard has written is committed, so nobody acts on what a crash could take back.
"""

import random
import uuid
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from cordwood.groups.classic.group import NEVER_MS, Limits
from cordwood.groups.classic.join import JoinRequest
from cordwood.groups.classic.leave import Leaving
from cordwood.groups.classic.outbox import JoinAnswer, JoinTicket, Outbox, SyncAnswer, SyncTicket
from cordwood.groups.classic.sync import SyncRequest
from cordwood.groups.consumer.heartbeat import ConsumerLimits, HeartbeatAnswer, HeartbeatRequest
from cordwood.groups.consumer.shares import NOTHING, Share, partition_in
from cordwood.groups.offset_records import OFFSET_COMMIT_KEY_TYPES, Position, decode_key, record_type
from cordwood.groups.positions import Commit, CommitOutcome
from cordwood.groups.shard import GroupListing, GroupShard
from cordwood.model.coordination import coordinating_partition, is_too_long
from cordwood.model.errors import ErrorCode, ProtocolError
from cordwood.model.identifiers import CONSUMER_OFFSETS_TOPIC, TopicId, TopicPartition
from cordwood.node.coordinator_log import CoordinatorLog, Done, Shard, Writer
from cordwood.node.in_turns import InTurns
from cordwood.node.partition import Partition
from cordwood.node.timers import Timer
from cordwood.node.topic_matching import TopicMatching
from cordwood.records.control import TransactionMarker

if TYPE_CHECKING:
    from cordwood.node.node import Node

MINUTE_MS = 60_000
MAX_PREFIX_LENGTH = 200

Failed = Callable[[ErrorCode], None]

UNSTABLE = Position(-1, -1, "", -1)
"""Stands for a position that an open transaction is about to move."""


def nothing(error: ErrorCode) -> None:
    """For whoever waits for no answer."""


class Author(NamedTuple):
    """In whose name positions are committed: a member of a generation, or nobody in particular."""

    member_id: str = ""
    instance_id: str | None = None
    generation: int = -1


class Alarm(NamedTuple):
    at_ms: int
    timer: Timer


class GroupCoordinator:
    def __init__(self, node: "Node", seed: int) -> None:
        self._node = node
        self._chance = random.Random(seed)
        self._alarms: dict[str, Alarm] = {}
        self._held = node.held_heartbeats
        self._topics = TopicMatching(node)
        self._in_turns = InTurns(node)
        self._deleted_topics: dict[Shard[GroupShard], list[TopicId]] = {}
        """Whose positions a shard is to be looked through for."""
        self._log = CoordinatorLog(node, CONSUMER_OFFSETS_TOPIC, lambda: GroupShard(self._topics), self._loaded)

    def when_topic_exists(self, done: Callable[[ProtocolError | None], None]) -> None:
        self._log.when_topic_exists(done)

    def new_member_id(self, prefix: str) -> str:
        return f"{prefix[:MAX_PREFIX_LENGTH]}-{uuid.UUID(int=self._chance.getrandbits(128), version=4)}"

    # Membership

    def join(self, group_id: str, request: JoinRequest, now_ms: int, ticket: JoinTicket) -> None:
        def failed(error: ErrorCode) -> None:
            ticket(JoinAnswer(error, request.member_id))

        def loaded(shard: Shard[GroupShard]) -> None:
            if not shard.machine.exists(group_id) and self._is_full():
                failed(ErrorCode.GROUP_MAX_SIZE_REACHED)
                return
            out = Outbox()
            shard.machine.join(group_id, request, ticket, out, now_ms, self._limits(shard))
            self._settle(shard, group_id, out, now_ms)

        self._with_shard(group_id, loaded, failed)

    def sync(self, group_id: str, request: SyncRequest, now_ms: int, ticket: SyncTicket) -> None:
        def loaded(shard: Shard[GroupShard]) -> None:
            out = Outbox()
            shard.machine.sync(group_id, request, ticket, out, now_ms, self._limits(shard))
            self._settle(shard, group_id, out, now_ms)

        self._with_shard(group_id, loaded, lambda error: ticket(SyncAnswer(error)))

    def heartbeat(
        self, group_id: str, author: Author, connection_id: int, now_ms: int, done: Callable[[ErrorCode], None]
    ) -> None:
        def loaded(shard: Shard[GroupShard]) -> None:
            machine = shard.machine
            found = machine.heartbeat(group_id, *author, now_ms)
            if found is ErrorCode.NONE and at_once and self._held.is_patient(connection_id):
                longest_ms = self._node.settings.group_heartbeat_hold_ms
                wait_ms = min(longest_ms, machine.may_wait_ms(group_id, author.member_id))
                if wait_ms:
                    self._held.hold(
                        group_id,
                        connection_id,
                        now_ms + wait_ms,
                        lambda: machine.standing(group_id, *author) is not ErrorCode.NONE,
                        partial(waited, shard),
                    )
                    return
            self._log.when_committed(shard, now_ms, lambda error: done(error or found))

        def waited(shard: Shard[GroupShard], now_ms: int) -> None:
            found = shard.machine.standing(group_id, *author)
            self._log.when_committed(shard, now_ms, lambda error: done(error or found))

        # Later the connection may have asked for something else, which must not wait behind this.
        at_once = True
        self._with_shard(group_id, loaded, done)
        at_once = False

    def leave(
        self,
        group_id: str,
        leaving: list[Leaving],
        now_ms: int,
        done: Callable[[list[ErrorCode]], None],
        failed: Failed,
    ) -> None:
        def loaded(shard: Shard[GroupShard]) -> None:
            out = Outbox()
            errors = shard.machine.leave(group_id, leaving, out, now_ms, self._limits(shard))
            self._settle(shard, group_id, out, now_ms, lambda error: failed(error) if error else done(errors))

        self._with_shard(group_id, loaded, failed)

    def consumer_heartbeat(
        self,
        group_id: str,
        request: HeartbeatRequest,
        now_ms: int,
        done: Callable[[HeartbeatAnswer | ProtocolError], None],
    ) -> None:
        """The consumer protocol's only request: all else follows from it."""

        def failed(error: ErrorCode) -> None:
            done(ProtocolError(error, "The coordinator is not available."))

        def loaded(shard: Shard[GroupShard]) -> None:
            def matched(refused: dict[str, ProtocolError]) -> None:
                # What is in the log and no longer an expression matches nothing new; a new one has to be one.
                refusal = refused.get(request.expression or "")
                if refusal is None:
                    beat(shard)
                else:
                    self._log.when_committed(shard, now_ms, lambda error: failed(error) if error else done(refusal))

            self._topics.when_known(shard.machine.expressions(group_id, request), matched)

        def beat(shard: Shard[GroupShard]) -> None:
            out = Outbox()
            limits = self._consumer_limits()
            answer: HeartbeatAnswer | ProtocolError
            try:
                if not shard.machine.exists(group_id) and self._is_full():
                    raise ProtocolError(ErrorCode.GROUP_MAX_SIZE_REACHED, "This broker has as many groups as it takes.")
                answer = shard.machine.consumer_heartbeat(group_id, request, out, limits, now_ms)
            except ProtocolError as refusal:
                out, answer = Outbox(), refusal
            self._settle(shard, group_id, out, now_ms, lambda error: failed(error) if error else done(answer))
            if not isinstance(answer, ProtocolError):
                shard.machine.consumer_heard_of(group_id, request.member_id, now_ms, limits)
                self._set_alarm(shard, group_id)

        self._with_shard(group_id, loaded, failed)

    # Positions

    def commit(
        self,
        group_id: str,
        author: Author,
        commits: list[Commit],
        now_ms: int,
        done: Callable[[list[ErrorCode]], None],
        *,
        knows_epochs: bool = True,
    ) -> None:
        """Remembers the positions; `done` gets one error code for each of them, once they are committed."""

        partitions = self._partitions(commits)

        def failed(error: ErrorCode) -> None:
            done([error] * len(commits))

        def loaded(shard: Shard[GroupShard]) -> None:
            machine = shard.machine
            refusal = machine.check_commit(
                group_id,
                *author,
                now_ms,
                partitions=_committed_in(commits, machine, group_id),
                knows_epochs=knows_epochs,
            )
            if refusal is ErrorCode.NONE and not machine.exists(group_id) and self._is_full():
                refusal = ErrorCode.GROUP_MAX_SIZE_REACHED
            if refusal is not ErrorCode.NONE:
                self._log.when_committed(shard, now_ms, lambda error: failed(error or refusal))
                return
            outcome = self._commit(machine, group_id, commits, partitions, now_ms)
            self._log.write(shard, outcome.records, now_ms, lambda error: done(outcome.told(error)))

        self._with_shard(group_id, loaded, failed)

    def commit_in_transaction(
        self,
        group_id: str,
        author: Author,
        commits: list[Commit],
        admit: Callable[[TopicPartition, Done], None],
        writer: Writer,
        done: Callable[[list[ErrorCode]], None],
    ) -> None:
        """As `commit`, but the positions hold only once the writer's transaction is committed.

        `admit` asks the transaction's coordinator whether the partition of __consumer_offsets is part of it, and calls
        back at a moment when that is true.
        """

        partitions = self._partitions(commits)

        def failed(error: ErrorCode) -> None:
            done([error] * len(commits))

        def loaded(shard: Shard[GroupShard]) -> None:
            def admitted(error: ErrorCode) -> None:
                machine, now_ms = shard.machine, self._node.now_ms
                error = error or machine.check_commit(
                    group_id,
                    *author,
                    now_ms,
                    partitions=_committed_in(commits, machine, group_id),
                    transactional=True,
                )
                if error is ErrorCode.NONE and not machine.exists(group_id) and self._is_full():
                    error = ErrorCode.GROUP_MAX_SIZE_REACHED
                if error is not ErrorCode.NONE:
                    failed(error)
                    return
                outcome = self._commit(machine, group_id, commits, partitions, now_ms)
                self._log.write(shard, outcome.records, now_ms, lambda error: done(outcome.told(error)), writer)

            admit(shard.partition.name, admitted)

        self._with_shard(group_id, loaded, failed)

    def _partitions(self, commits: list[Commit]) -> list[Partition]:
        """Those that the positions are in, as they are now."""
        return [self._node.partition(*commit.partition) for commit in commits]

    def _commit(
        self, machine: GroupShard, group_id: str, commits: list[Commit], partitions: list[Partition], now_ms: int
    ) -> CommitOutcome:
        """Who waited for the coordinator may find that a topic was deleted meanwhile, and even created anew."""
        owns = self._node.owns
        present = [commit for commit, partition in zip(commits, partitions, strict=True) if owns(partition)]
        outcome = machine.positions.commit(
            group_id, present, metadata_max_bytes=self._node.settings.offset_metadata_max_bytes, now_ms=now_ms
        )
        if len(present) == len(commits):
            return outcome
        errors = iter(outcome.errors)
        return CommitOutcome(
            outcome.records,
            [next(errors) if owns(partition) else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION for partition in partitions],
        )

    def partition_of(self, group_id: str) -> TopicPartition:
        """Where the positions of a group are kept; the topic exists."""
        count = len(self._node.topics[CONSUMER_OFFSETS_TOPIC])
        return TopicPartition(CONSUMER_OFFSETS_TOPIC, coordinating_partition(group_id, count))

    def end_transaction(
        self,
        index: int,
        writer: Writer,
        marker: TransactionMarker,
        now_ms: int,
        failed: Done,
        done: Callable[[int], None],
    ) -> None:
        self._log.end_transaction(index, writer, marker, now_ms, failed, done)

    def fetch(
        self,
        group_id: str,
        reader: Author,
        now_ms: int,
        done: Callable[[dict[TopicPartition, Position] | ErrorCode], None],
        *,
        require_stable: bool = False,
    ) -> None:
        """All positions of a group, as committed by now; UNSTABLE, if asked for, where that is about to change."""

        def loaded(shard: Shard[GroupShard]) -> None:
            refusal = shard.machine.check_fetch(group_id, reader.member_id, reader.generation)
            found = shard.machine.positions_of(group_id)
            if require_stable:
                found.update(dict.fromkeys(_pending(shard, group_id), UNSTABLE))
            self._log.when_committed(shard, now_ms, lambda error: done(error or refusal or found))

        self._with_shard(group_id, loaded, done)

    def topics_changed(self, created: list[str], deleted: list[str]) -> None:
        """The image has it already."""
        self._topics.topics_changed(created, deleted)

    def topic_deleted(self, topic: str, topic_id: TopicId) -> None:
        """Positions in a topic that is gone go with it: soon, and until then the topic's id keeps them from sight."""
        node = self._node

        def look(shard: Shard[GroupShard]) -> None:
            positions = shard.machine.positions
            if positions.may_lack_id(topic):
                self._log.write(shard, positions.of_deleted_topic(topic, topic_id), node.now_ms, nothing)
            elif shard in self._deleted_topics:
                self._deleted_topics[shard].append(topic_id)
            else:
                self._deleted_topics[shard] = [topic_id]
                self._in_turns.add(partial(self._forget_deleted, shard))

        self._log.each_shard_with_records(look)

    def _forget_deleted(self, shard: Shard[GroupShard], now_ms: int) -> None:
        deleted = self._deleted_topics.pop(shard)
        self._log.write(shard, shard.machine.positions.of_topics(deleted), now_ms, nothing)

    def expire(self) -> None:
        """One shard after the other: a hundred thousand positions take a while, and others are served in between."""
        retention_ms = self._node.settings.offsets_retention_minutes * MINUTE_MS

        def look(shard: Shard[GroupShard], now_ms: int) -> None:
            # What an open transaction is about to move is in use: a tombstone that comes later would undo its commit.
            moving = frozenset(shard.pending.keys())
            expired = shard.machine.expired(now_ms, retention_ms)
            self._log.write(shard, [record for record in expired if record[0] not in moving], now_ms, nothing)

        self._log.each_shard_with_records(lambda shard: self._in_turns.add(partial(look, shard)))

    # Administration

    def describe(self, group_id: str, now_ms: int, done: Callable[[GroupShard], None], failed: Failed) -> None:
        """Shows the shard that the group lives in, if it does; the caller changes nothing."""

        def loaded(shard: Shard[GroupShard]) -> None:
            def committed(error: ErrorCode) -> None:
                if error is ErrorCode.NONE:
                    done(shard.machine)
                else:
                    failed(error)

            self._log.when_committed(shard, now_ms, committed)

        self._with_shard(group_id, loaded, failed)

    def list_groups(self, done: Callable[[list[GroupListing], ErrorCode], None]) -> None:
        """All groups that could be read, and what went wrong with the rest."""
        found: list[GroupListing] = []
        self._log.each_shard_with_records(
            lambda shard: found.extend(shard.machine.listing()), lambda error: done(sorted(found), error)
        )

    def visit_shards(self, visit: Callable[[GroupShard], None], finished: Failed) -> None:
        """Shows every shard that holds something, and says when all were shown; the caller changes nothing."""
        self._log.each_shard_with_records(lambda shard: visit(shard.machine), finished)

    def delete(self, group_id: str, now_ms: int, done: Callable[[ErrorCode], None]) -> None:
        def loaded(shard: Shard[GroupShard]) -> None:
            out = Outbox()
            refusal = shard.machine.delete(group_id, out, _pending(shard, group_id))
            self._settle(shard, group_id, out, now_ms, lambda error: done(error or refusal))

        self._with_shard(group_id, loaded, done)

    def delete_positions(
        self,
        group_id: str,
        partitions: list[TopicPartition],
        now_ms: int,
        done: Callable[[ErrorCode | list[ErrorCode]], None],
    ) -> None:
        def loaded(shard: Shard[GroupShard]) -> None:
            out = Outbox()
            outcome = shard.machine.delete_positions(group_id, partitions, out, _pending(shard, group_id))
            self._settle(shard, group_id, out, now_ms, lambda error: done(error or outcome))

        self._with_shard(group_id, loaded, done)

    # Time, and the end of it

    def stop_waiting(self, now_ms: int) -> None:
        """The broker stops: members that wait for a round find another coordinator, or this one again."""
        for shard in self._log.loaded_shards():
            out = Outbox()
            shard.machine.refuse_all(out, ErrorCode.COORDINATOR_NOT_AVAILABLE)
            out.settle(ErrorCode.NONE)

    def shift_deadlines(self, by_ms: int) -> None:
        """The wall clock was set; the node's timers are shifted already."""
        for shard in self._log.loaded_shards():
            shard.machine.shift_deadlines(by_ms)
        self._alarms = {group_id: Alarm(at_ms + by_ms, timer) for group_id, (at_ms, timer) in self._alarms.items()}

    def _loaded(self, shard: Shard[GroupShard]) -> None:
        shard.machine.after_loading(self._node.now_ms, self._consumer_limits())
        for group_id in shard.machine.group_ids():
            self._set_alarm(shard, group_id)

    def _set_alarm(self, shard: Shard[GroupShard], group_id: str) -> None:
        """One timer for each group, never later than its next deadline: heartbeats need not touch it."""
        wake_ms = shard.machine.wake_ms(group_id)
        alarm = self._alarms.get(group_id)
        if alarm is not None:
            if alarm.at_ms <= wake_ms < NEVER_MS:
                return
            del self._alarms[group_id]
            alarm.timer.cancel()
        if wake_ms < NEVER_MS:
            timer = self._node.timers.at(wake_ms, partial(self._time_passed, shard, group_id))
            self._alarms[group_id] = Alarm(wake_ms, timer)
            self._node.effects.wake()

    def _time_passed(self, shard: Shard[GroupShard], group_id: str, now_ms: int) -> None:
        del self._alarms[group_id]
        out = Outbox()
        shard.machine.time_passed(group_id, out, now_ms, self._limits(shard))
        self._settle(shard, group_id, out, now_ms)

    # Settling

    def _settle(
        self,
        shard: Shard[GroupShard],
        group_id: str,
        out: Outbox,
        now_ms: int,
        done: Callable[[ErrorCode], None] = nothing,
    ) -> None:
        """Writes what a transition wants remembered, and gives its answers when that is committed."""
        self._held.look(group_id, now_ms)
        if done is nothing and out.is_empty:
            self._set_alarm(shard, group_id)
            return

        def committed(error: ErrorCode) -> None:
            out.settle(error)
            done(error)
            if error is not ErrorCode.NONE and out.records:
                again = Outbox()
                shard.machine.not_written(group_id, again, self._node.now_ms, self._limits(shard))
                self._settle(shard, group_id, again, self._node.now_ms)

        if out.records:
            self._log.write(shard, out.records, now_ms, committed)
        else:
            self._log.when_committed(shard, now_ms, committed)
        self._set_alarm(shard, group_id)

    def _with_shard(self, group_id: str, done: Callable[[Shard[GroupShard]], None], failed: Failed) -> None:
        if is_too_long(group_id):
            failed(ErrorCode.INVALID_GROUP_ID)
            return
        self._log.with_shard(partial(coordinating_partition, group_id), done, failed)

    def _limits(self, shard: Shard[GroupShard]) -> Limits:
        settings = self._node.settings
        return Limits(
            settings.group_max_size,
            settings.group_min_session_timeout_ms,
            settings.group_max_session_timeout_ms,
            settings.group_initial_rebalance_delay_ms,
            shard.partition.settings.max_message_bytes,
        )

    def _consumer_limits(self) -> ConsumerLimits:
        settings = self._node.settings
        return ConsumerLimits(
            settings.group_consumer_max_size,
            settings.group_consumer_session_timeout_ms,
            self._node.image.topics[CONSUMER_OFFSETS_TOPIC].settings.max_message_bytes,
        )

    def _is_full(self) -> bool:
        return sum(shard.machine.at_least() for shard in self._log.loaded_shards()) >= self._node.settings.groups_max


def _committed_in(commits: list[Commit], machine: GroupShard, group_id: str) -> Share:
    """What members of the consumer protocol are asked about; others are not."""
    if group_id not in machine.consumer_groups:
        return NOTHING
    return frozenset([partition_in(commit.topic_id, commit.partition.partition) for commit in commits])


def _pending(shard: Shard[GroupShard], group_id: str) -> frozenset[TopicPartition]:
    """Partitions for which an open transaction holds a position of this group."""
    positions = (key for key in shard.pending.keys() if record_type(key) in OFFSET_COMMIT_KEY_TYPES)  # noqa: SIM118
    return frozenset(partition for owner, partition in map(decode_key, positions) if owner == group_id)
