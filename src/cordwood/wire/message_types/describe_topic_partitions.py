"""Generated from `messages/DescribeTopicPartitions.txt` by `make types`."""

from collections.abc import Sequence
from typing import Protocol, TypedDict

from cordwood.model.identifiers import TopicId
from cordwood.wire.api_types import ApiTypes, Array
from cordwood.wire.schema import Entity


class DescribeTopicPartitionsRequestTopic(Entity):
    name: str


class DescribeTopicPartitionsRequestCursor(Entity):
    topic_name: str
    partition_index: int


class DescribeTopicPartitionsRequest(Entity):
    topics: Sequence[DescribeTopicPartitionsRequestTopic]
    response_partition_limit: int
    cursor: DescribeTopicPartitionsRequestCursor | None


class DescribeTopicPartitionsResponsePartition(Entity):
    error_code: int
    partition_index: int
    leader_id: int
    leader_epoch: int
    replica_nodes: Sequence[int]
    isr_nodes: Sequence[int]
    eligible_leader_replicas: Sequence[int] | None
    last_known_elr: Sequence[int] | None
    offline_replicas: Sequence[int]


class DescribeTopicPartitionsResponseTopic(Entity):
    error_code: int
    name: str | None
    topic_id: TopicId | None
    is_internal: bool
    partitions: Sequence[DescribeTopicPartitionsResponsePartition]
    topic_authorized_operations: int


class DescribeTopicPartitionsResponseNextCursor(Entity):
    topic_name: str
    partition_index: int


class DescribeTopicPartitionsResponse(Entity):
    throttle_time_ms: int
    topics: Sequence[DescribeTopicPartitionsResponseTopic]
    next_cursor: DescribeTopicPartitionsResponseNextCursor | None


class DescribeTopicPartitionsAnswerPartition(TypedDict, total=False):
    error_code: int
    partition_index: int
    leader_id: int
    leader_epoch: int
    replica_nodes: Array[int]
    isr_nodes: Array[int]
    eligible_leader_replicas: Array[int] | None
    last_known_elr: Array[int] | None
    offline_replicas: Array[int]


class DescribeTopicPartitionsAnswerTopic(TypedDict, total=False):
    error_code: int
    name: str | None
    topic_id: TopicId | None
    is_internal: bool
    partitions: Array[DescribeTopicPartitionsAnswerPartition]
    topic_authorized_operations: int


class DescribeTopicPartitionsAnswerNextCursor(TypedDict, total=False):
    topic_name: str
    partition_index: int


class DescribeTopicPartitionsAnswer(Protocol):
    def __call__(
        self,
        *,
        throttle_time_ms: int = ...,
        topics: Array[DescribeTopicPartitionsAnswerTopic] = ...,
        next_cursor: DescribeTopicPartitionsAnswerNextCursor | None = ...,
    ) -> None: ...


class DescribeTopicPartitions(
    ApiTypes[
        DescribeTopicPartitionsRequest,
        DescribeTopicPartitionsAnswer,
        DescribeTopicPartitionsResponse,
    ]
):
    pass
