"""Generated from `messages/ConsumerGroupHeartbeat.txt` by `make types`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, TypedDict

from cordwood.model.identifiers import TopicId
from cordwood.wire.api_types import ApiTypes, Array
from cordwood.wire.encoding.schema import Entity


class ConsumerGroupHeartbeat(
    ApiTypes[
        "ConsumerGroupHeartbeat.Request",
        "ConsumerGroupHeartbeat.Answer",
        "ConsumerGroupHeartbeat.Response",
    ]
):
    class RequestTopicPartition(Entity):
        topic_id: TopicId | None
        partitions: Sequence[int]

    class Request(Entity):
        group_id: str
        member_id: str
        member_epoch: int
        instance_id: str | None
        rack_id: str | None
        rebalance_timeout_ms: int
        subscribed_topic_names: Sequence[str] | None
        subscribed_topic_regex: str | None
        server_assignor: str | None
        topic_partitions: Sequence[ConsumerGroupHeartbeat.RequestTopicPartition] | None

    class ResponseTopicPartition(Entity):
        topic_id: TopicId | None
        partitions: Sequence[int]

    class ResponseAssignment(Entity):
        topic_partitions: Sequence[ConsumerGroupHeartbeat.ResponseTopicPartition]

    class Response(Entity):
        throttle_time_ms: int
        error_code: int
        error_message: str | None
        member_id: str | None
        member_epoch: int
        heartbeat_interval_ms: int
        assignment: ConsumerGroupHeartbeat.ResponseAssignment | None

    class AnswerTopicPartition(TypedDict, total=False):
        topic_id: TopicId | None
        partitions: Array[int]

    class AnswerAssignment(TypedDict, total=False):
        topic_partitions: Array[ConsumerGroupHeartbeat.AnswerTopicPartition]

    class Answer(Protocol):
        def __call__(
            self,
            *,
            throttle_time_ms: int = ...,
            error_code: int = ...,
            error_message: str | None = ...,
            member_id: str | None = ...,
            member_epoch: int = ...,
            heartbeat_interval_ms: int = ...,
            assignment: ConsumerGroupHeartbeat.AnswerAssignment | None = ...,
        ) -> None: ...
