"""Generated from `messages/ShareGroupHeartbeat.txt` by `make types`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, TypedDict

from cordwood.model.identifiers import TopicId
from cordwood.wire.api_types import ApiTypes, Array
from cordwood.wire.encoding.schema import Entity


class ShareGroupHeartbeat(
    ApiTypes[
        "ShareGroupHeartbeat.Request",
        "ShareGroupHeartbeat.Answer",
        "ShareGroupHeartbeat.Response",
    ]
):
    class Request(Entity):
        group_id: str
        member_id: str
        member_epoch: int
        rack_id: str | None
        subscribed_topic_names: Sequence[str] | None

    class ResponseTopicPartition(Entity):
        topic_id: TopicId | None
        partitions: Sequence[int]

    class ResponseAssignment(Entity):
        topic_partitions: Sequence[ShareGroupHeartbeat.ResponseTopicPartition]

    class Response(Entity):
        throttle_time_ms: int
        error_code: int
        error_message: str | None
        member_id: str | None
        member_epoch: int
        heartbeat_interval_ms: int
        assignment: ShareGroupHeartbeat.ResponseAssignment | None

    class AnswerTopicPartition(TypedDict, total=False):
        topic_id: TopicId | None
        partitions: Array[int]

    class AnswerAssignment(TypedDict, total=False):
        topic_partitions: Array[ShareGroupHeartbeat.AnswerTopicPartition]

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
            assignment: ShareGroupHeartbeat.AnswerAssignment | None = ...,
        ) -> None: ...
