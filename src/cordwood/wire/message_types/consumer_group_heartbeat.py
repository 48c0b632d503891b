"""Generated from `messages/ConsumerGroupHeartbeat.txt` by `make types`."""

from collections.abc import Sequence
from typing import Protocol, TypedDict

from cordwood.model.identifiers import TopicId
from cordwood.wire.api_types import ApiTypes, Array
from cordwood.wire.schema import Entity


class ConsumerGroupHeartbeatRequestTopicPartition(Entity):
    topic_id: TopicId | None
    partitions: Sequence[int]


class ConsumerGroupHeartbeatRequest(Entity):
    group_id: str
    member_id: str
    member_epoch: int
    instance_id: str | None
    rack_id: str | None
    rebalance_timeout_ms: int
    subscribed_topic_names: Sequence[str] | None
    subscribed_topic_regex: str | None
    server_assignor: str | None
    topic_partitions: Sequence[ConsumerGroupHeartbeatRequestTopicPartition] | None


class ConsumerGroupHeartbeatResponseTopicPartition(Entity):
    topic_id: TopicId | None
    partitions: Sequence[int]


class ConsumerGroupHeartbeatResponseAssignment(Entity):
    topic_partitions: Sequence[ConsumerGroupHeartbeatResponseTopicPartition]


class ConsumerGroupHeartbeatResponse(Entity):
    throttle_time_ms: int
    error_code: int
    error_message: str | None
    member_id: str | None
    member_epoch: int
    heartbeat_interval_ms: int
    assignment: ConsumerGroupHeartbeatResponseAssignment | None


class ConsumerGroupHeartbeatAnswerTopicPartition(TypedDict, total=False):
    topic_id: TopicId | None
    partitions: Array[int]


class ConsumerGroupHeartbeatAnswerAssignment(TypedDict, total=False):
    topic_partitions: Array[ConsumerGroupHeartbeatAnswerTopicPartition]


class ConsumerGroupHeartbeatAnswer(Protocol):
    def __call__(
        self,
        *,
        throttle_time_ms: int = ...,
        error_code: int = ...,
        error_message: str | None = ...,
        member_id: str | None = ...,
        member_epoch: int = ...,
        heartbeat_interval_ms: int = ...,
        assignment: ConsumerGroupHeartbeatAnswerAssignment | None = ...,
    ) -> None: ...


class ConsumerGroupHeartbeat(
    ApiTypes[
        ConsumerGroupHeartbeatRequest,
        ConsumerGroupHeartbeatAnswer,
        ConsumerGroupHeartbeatResponse,
    ]
):
    pass
