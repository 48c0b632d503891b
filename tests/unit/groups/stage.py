"""A shard of groups on a stage: time that is set by hand, a log that is a list, and members that remember answers."""

import struct

from tests.moments import at

from cordwood.groups.classic.group import Group, Limits, State
from cordwood.groups.classic.join import JoinRequest
from cordwood.groups.classic.outbox import JoinAnswer, Outbox, SyncAnswer
from cordwood.groups.classic.sync import SyncRequest
from cordwood.groups.consumer.heartbeat import ConsumerLimits
from cordwood.groups.shard import GroupShard
from cordwood.groups.state.committed_positions import Commit, Record
from cordwood.model.errors import ErrorCode
from cordwood.model.identifiers import ZERO_TOPIC_ID, TopicPartition

GROUP = "g"
LIMITS = Limits(
    max_size=5,
    min_session_timeout_ms=10,
    max_session_timeout_ms=10_000,
    initial_rebalance_delay_ms=0,
    max_metadata_bytes=10_000,
    max_member_bytes=10_000,
)
SESSION_MS = 1000
REBALANCE_MS = 3000


def subscription(*topics: str, user_data: bytes = b"") -> bytes:
    names = b"".join(struct.pack(">h", len(topic)) + topic.encode() for topic in topics)
    return struct.pack(">hi", 0, len(topics)) + names + struct.pack(">i", len(user_data)) + user_data


class Stage:
    def __init__(self, limits: Limits = LIMITS) -> None:
        self.limits = limits
        self.shard = GroupShard()
        self.log: list[Record] = []
        self.now_ms = 1_000_000
        self.disk_is_full = False
        self._ids = 0

    @property
    def group(self) -> Group:
        return self.shard.groups[GROUP]

    @property
    def state(self) -> State:
        group = self.shard.groups.get(GROUP)
        return State.DEAD if group is None else group.state

    def settle(self, out: Outbox) -> ErrorCode:
        if self.disk_is_full and out.records:
            out.settle(ErrorCode.COORDINATOR_NOT_AVAILABLE)
            again = Outbox()
            self.shard.not_written(GROUP, again, at(self.now_ms), self.limits)
            again.settle(ErrorCode.NONE)
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        for record in out.records:
            self.log.append(record)
            self.shard.replay(*record)
        out.settle(ErrorCode.NONE)
        return ErrorCode.NONE

    def restart(self) -> None:
        """Replaces the broker by one that has only the log."""
        self.shard = GroupShard()
        for record in self.log:
            self.shard.replay(*record)
        self.shard.after_loading(at(self.now_ms), lambda _: ConsumerLimits(5, SESSION_MS, 10_000))

    def pass_time(self, by_ms: int) -> None:
        """Lets time pass, deadline by deadline, as the node's timers do."""
        end_ms = self.now_ms + by_ms
        while (group := self.shard.groups.get(GROUP)) is not None and group.wake_ms <= end_ms:
            self.now_ms = max(self.now_ms, group.wake_ms)
            out = Outbox()
            self.shard.time_passed(GROUP, out, at(self.now_ms), self.limits)
            self.settle(out)
        self.now_ms = end_ms

    def next_id(self, name: str) -> str:
        self._ids += 1
        return f"{name}-{self._ids}"

    def leave(self, *leaving: tuple[str, str | None]) -> list[ErrorCode]:
        out = Outbox()
        errors = self.shard.leave(GROUP, list(leaving), out, at(self.now_ms), self.limits)
        self.settle(out)
        return errors

    def commit(self, partition: TopicPartition, offset: int, *author: object) -> ErrorCode:
        member_id, instance_id, generation = author or ("", None, -1)
        assert isinstance(member_id, str)
        assert isinstance(generation, int)
        assert instance_id is None or isinstance(instance_id, str)
        refusal = self.shard.check_commit(GROUP, member_id, instance_id, generation, at(self.now_ms))
        if refusal is ErrorCode.NONE:
            out = Outbox()
            asked = [Commit(partition, offset, -1, "", ZERO_TOPIC_ID)]
            out.records += self.shard.positions.commit(GROUP, asked, metadata_max_bytes=9, wall_ms=self.now_ms).records
            return self.settle(out)
        return refusal


class Actor:
    """A client that wants to be a member."""

    def __init__(
        self,
        stage: Stage,
        name: str,
        *,
        instance_id: str | None = None,
        protocols: tuple[tuple[str, bytes], ...] = (("range", subscription("orders")),),
        session_ms: int = SESSION_MS,
        version: int = 9,
    ) -> None:
        self.stage = stage
        self.name = name
        self.instance_id = instance_id
        self.protocols = protocols
        self.protocol_type = "consumer"
        self.session_ms = session_ms
        self.version = version
        self.member_id = ""
        self.generation = -1
        self.joins: list[JoinAnswer] = []
        self.syncs: list[SyncAnswer] = []

    def ask_to_join(self) -> None:
        """Sends one JoinGroup request, whose answer arrives in `joins`."""
        stage = self.stage
        request = JoinRequest(
            self.member_id,
            self.instance_id,
            self.name,
            "/127.0.0.1",
            self.session_ms,
            REBALANCE_MS,
            self.protocol_type,
            self.protocols,
            stage.next_id(self.name),
            asks_for_id_first=self.version >= 4,
            can_skip_assignment=self.version >= 9,
        )
        out = Outbox()
        stage.shard.join(GROUP, request, self._joined, out, at(stage.now_ms), stage.limits)
        stage.settle(out)

    def _joined(self, answer: JoinAnswer) -> None:
        self.joins.append(answer)
        if answer.error in (ErrorCode.NONE, ErrorCode.MEMBER_ID_REQUIRED):
            self.member_id = answer.member_id
            self.generation = answer.generation

    def join(self) -> None:
        """Joins as a client does: asks for an id first, then joins with it."""
        self.ask_to_join()
        if self.joins and self.joins[-1].error is ErrorCode.MEMBER_ID_REQUIRED:
            self.ask_to_join()

    @property
    def leads(self) -> bool:
        return bool(self.joins) and self.joins[-1].leader == self.member_id

    def sync(self, assignments: dict[str, bytes] | None = None) -> None:
        stage = self.stage
        out = Outbox()
        request = SyncRequest(self.member_id, self.instance_id, self.generation, None, None, assignments or {})
        stage.shard.sync(GROUP, request, self.syncs.append, out, at(stage.now_ms), stage.limits)
        stage.settle(out)

    def heartbeat(self) -> ErrorCode:
        stage = self.stage
        return stage.shard.heartbeat(GROUP, self.member_id, self.instance_id, self.generation, at(stage.now_ms))

    def commit(self, offset: int) -> ErrorCode:
        partition = TopicPartition("orders", 0)
        return self.stage.commit(partition, offset, self.member_id, self.instance_id, self.generation)


def form_group(*actors: Actor) -> None:
    """Has all join while the first round gathers them; the leader assigns each its own name, and all sync."""
    stage = actors[0].stage
    for actor in actors:
        actor.join()
    stage.pass_time(3 * stage.limits.initial_rebalance_delay_ms)
    share_work(*actors)


def share_work(*actors: Actor) -> None:
    for actor in sorted(actors, key=lambda each: each.leads):
        assignments = {other.member_id: other.name.encode() for other in actors} if actor.leads else None
        actor.sync(assignments)
