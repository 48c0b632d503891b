"""A consumer-protocol group on a stage: topics and time set by hand, a log that is a list, members that obey."""

import re
import uuid
import zlib

import pytest
from tests.moments import at
from tests.unit.groups.stage import LIMITS as CLASSIC_LIMITS

from cordwood.groups.classic.outbox import Outbox
from cordwood.groups.consumer.group import ConsumerGroup, ConsumerGroupState
from cordwood.groups.consumer.heartbeat import ConsumerLimits, HeartbeatAnswer, HeartbeatRequest
from cordwood.groups.consumer.partition_sets import NOTHING, Share, by_topic_id
from cordwood.groups.consumer.records import Resolution
from cordwood.groups.consumer.topics import Reader, Subscribed, TopicShape
from cordwood.groups.shard import GroupShard
from cordwood.groups.state.committed_positions import Record
from cordwood.model.errors import ErrorCode, ProtocolError
from cordwood.model.identifiers import TopicId

GROUP = "g"
SESSION_MS = 1000
REBALANCE_MS = 3000
LIMITS = ConsumerLimits(max_size=5, session_timeout_ms=SESSION_MS, max_profile_bytes=10_000)
ORDERS, REFUNDS = uuid.UUID(int=1), uuid.UUID(int=2)


class StageTopics(dict[str, TopicShape]):
    """Topics that a test makes and takes away; expressions are matched at once, unless the test says not yet."""

    hidden: dict[str, set[str]]
    """The topics that some principals may not describe."""

    def __init__(self, **topics: TopicShape) -> None:
        super().__init__(topics)
        self.not_yet: set[str] = set()
        self.hidden = {}
        self.asks = False

    @property
    def version(self) -> tuple[int, int]:
        hidden = sorted((principal, sorted(names)) for principal, names in self.hidden.items())
        return zlib.crc32(repr((sorted(self.items()), sorted(self.not_yet), hidden)).encode()), 0

    def shape_of(self, name: str) -> TopicShape | None:
        return self.get(name)

    def matching(self, subscribed: Subscribed) -> Resolution | None:
        expression, reader = subscribed
        if expression in self.not_yet or (reader is None and self.asks):
            return None
        hidden: set[str] = set() if reader is None else self.hidden.get(reader.principal[1], set())
        names = frozenset(name for name in self if re.fullmatch(expression, name)) - hidden
        return Resolution(names, self.version[0], 99)


class Stage:
    def __init__(self) -> None:
        self.topics = StageTopics(orders=TopicShape(ORDERS, 6), refunds=TopicShape(REFUNDS, 2))
        self.shard = GroupShard(self.topics)
        self.log: list[Record] = []
        self.now_ms = 1_000_000
        self.group_limits = LIMITS

    @property
    def group(self) -> ConsumerGroup:
        return self.shard.consumer_groups[GROUP]

    @property
    def state(self) -> ConsumerGroupState:
        return self.group.state

    def settle(self, out: Outbox) -> None:
        for record in out.records:
            self.log.append(record)
            self.shard.replay(*record)

    def restart(self) -> None:
        self.shard = GroupShard(self.topics)
        for record in self.log:
            self.shard.replay(*record)
        self.shard.after_loading(at(self.now_ms), lambda _: LIMITS)

    def compact(self) -> None:
        """Leaves only the last record of each key, in its place."""
        last = {key: place for place, (key, _) in enumerate(self.log)}
        self.log = [record for place, record in enumerate(self.log) if last[record[0]] == place]

    def pass_time(self, by_ms: int) -> None:
        end_ms = self.now_ms + by_ms
        while self.shard.wake_ms(GROUP) <= end_ms:
            self.now_ms = max(self.now_ms, self.shard.wake_ms(GROUP))
            out = Outbox()
            self.group_time_passed(out)
            self.settle(out)
        self.now_ms = end_ms

    def group_time_passed(self, out: Outbox) -> None:
        self.shard.time_passed(GROUP, out, at(self.now_ms), CLASSIC_LIMITS)


class Member:
    """A client that gives partitions back at once when told to, unless it is stubborn."""

    def __init__(
        self,
        stage: Stage,
        name: str,
        *topics: str,
        instance_id: str | None = None,
        assignor: str | None = None,
        expression: str | None = None,
        principal: str | None = None,
    ) -> None:
        self.stage = stage
        self.name = name
        self.topics: tuple[str, ...] | None = topics or ("orders",)
        if expression is not None:
            self.topics = topics or None
        self.expression = expression
        self.reader = None if principal is None else Reader(("User", principal, ()), "*")
        self.instance_id = instance_id
        self.assignor = assignor
        self.epoch = 0
        self.owned: Share = NOTHING

    def send(self, epoch: int | None = None, *, full: bool = False, quiet: bool = False) -> HeartbeatAnswer:
        """Sends a heartbeat. A quiet one does not report the member's partitions."""
        epoch = self.epoch if epoch is None else epoch
        joins = full or epoch == 0
        request = HeartbeatRequest(
            self.name,
            epoch,
            self.instance_id,
            None,
            "client",
            "/127.0.0.1",
            REBALANCE_MS if joins else -1,
            self.topics if joins else None,
            self.assignor,
            None if quiet else NOTHING if epoch == 0 else self.owned,
            self.expression if joins else None,
            reader=self.reader,
        )
        stage = self.stage
        out = Outbox()
        answer = stage.shard.consumer_heartbeat(GROUP, request, out, stage.group_limits, at(stage.now_ms))
        stage.settle(out)
        stage.shard.consumer_heard_of(GROUP, request, at(stage.now_ms), stage.group_limits)
        return answer

    def beat(self, *, quiet: bool = False) -> HeartbeatAnswer:
        answer = self.send(quiet=quiet)
        self.epoch = answer.epoch
        if answer.assignment is not None:
            self.owned = answer.assignment
        return answer

    def refused(self, epoch: int | None = None) -> ErrorCode:
        with pytest.raises(ProtocolError) as refusal:
            self.send(epoch)
        return refusal.value.code


def partitions_of(share: Share) -> list[tuple[TopicId, int]]:
    return [(topic_id, number) for topic_id, numbers in by_topic_id(share) for number in numbers]


def settle(*members: Member) -> None:
    for _ in range(4):
        for member in members:
            member.beat()


def sizes(*members: Member) -> list[int]:
    return [len(member.owned) for member in members]
