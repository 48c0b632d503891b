"""Generated from `messages/DescribeTopicPartitions.txt` by `make types`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, TypedDict

from cordwood.model.identifiers import TopicId
from cordwood.wire.api_types import ApiTypes, Array
from cordwood.wire.encoding.schema import Entity


class DescribeTopicPartitions(
    ApiTypes[
        "DescribeTopicPartitions.Request",
        "DescribeTopicPartitions.Answer",
        "DescribeTopicPartitions.Response",
    ]
):
    class RequestTopic(Entity):
        name: str

    class RequestCursor(Entity):
        topic_name: str
        partition_index: int

    class Request(Entity):
        topics: Sequence[DescribeTopicPartitions.RequestTopic]
        response_partition_limit: int
        cursor: DescribeTopicPartitions.RequestCursor | None

    class ResponsePartition(Entity):
        error_code: int
        partition_index: int
        leader_id: int
        leader_epoch: int
        replica_nodes: Sequence[int]
        isr_nodes: Sequence[int]
        eligible_leader_replicas: Sequence[int] | None
        last_known_elr: Sequence[int] | None
        offline_replicas: Sequence[int]

    class ResponseTopic(Entity):
        error_code: int
        name: str | None
        topic_id: TopicId | None
        is_internal: bool
        partitions: Sequence[DescribeTopicPartitions.ResponsePartition]
        topic_authorized_operations: int

    class ResponseNextCursor(Entity):
        topic_name: str
        partition_index: int

    class Response(Entity):
        throttle_time_ms: int
        topics: Sequence[DescribeTopicPartitions.ResponseTopic]
        next_cursor: DescribeTopicPartitions.ResponseNextCursor | None

    class AnswerPartition(TypedDict, total=False):
        error_code: int
        partition_index: int
        leader_id: int
        leader_epoch: int
        replica_nodes: Array[int]
        isr_nodes: Array[int]
        eligible_leader_replicas: Array[int] | None
        last_known_elr: Array[int] | None
        offline_replicas: Array[int]

    class AnswerTopic(TypedDict, total=False):
        error_code: int
        name: str | None
        topic_id: TopicId | None
        is_internal: bool
        partitions: Array[DescribeTopicPartitions.AnswerPartition]
        topic_authorized_operations: int

    class AnswerNextCursor(TypedDict, total=False):
        topic_name: str
        partition_index: int

    class Answer(Protocol):
        def __call__(
            self,
            *,
            throttle_time_ms: int = ...,
            topics: Array[DescribeTopicPartitions.AnswerTopic] = ...,
            next_cursor: DescribeTopicPartitions.AnswerNextCursor | None = ...,
        ) -> None: ...
