"""Generated from `messages/DescribeQuorum.txt` by `make types`."""

from collections.abc import Sequence
from typing import Protocol, TypedDict

from cordwood.model.identifiers import TopicId
from cordwood.wire.api_types import ApiTypes, Array
from cordwood.wire.schema import Entity


class DescribeQuorumRequestPartition(Entity):
    partition_index: int


class DescribeQuorumRequestTopic(Entity):
    topic_name: str
    partitions: Sequence[DescribeQuorumRequestPartition]


class DescribeQuorumRequest(Entity):
    topics: Sequence[DescribeQuorumRequestTopic]


class DescribeQuorumResponseCurrentVoter(Entity):
    replica_id: int
    replica_directory_id: TopicId | None
    log_end_offset: int
    last_fetch_timestamp: int
    last_caught_up_timestamp: int


class DescribeQuorumResponseObserver(Entity):
    replica_id: int
    replica_directory_id: TopicId | None
    log_end_offset: int
    last_fetch_timestamp: int
    last_caught_up_timestamp: int


class DescribeQuorumResponsePartition(Entity):
    partition_index: int
    error_code: int
    error_message: str | None
    leader_id: int
    leader_epoch: int
    high_watermark: int
    current_voters: Sequence[DescribeQuorumResponseCurrentVoter]
    observers: Sequence[DescribeQuorumResponseObserver]


class DescribeQuorumResponseTopic(Entity):
    topic_name: str
    partitions: Sequence[DescribeQuorumResponsePartition]


class DescribeQuorumResponseListener(Entity):
    name: str
    host: str
    port: int


class DescribeQuorumResponseNode(Entity):
    node_id: int
    listeners: Sequence[DescribeQuorumResponseListener]


class DescribeQuorumResponse(Entity):
    error_code: int
    error_message: str | None
    topics: Sequence[DescribeQuorumResponseTopic]
    nodes: Sequence[DescribeQuorumResponseNode]


class DescribeQuorumAnswerCurrentVoter(TypedDict, total=False):
    replica_id: int
    replica_directory_id: TopicId | None
    log_end_offset: int
    last_fetch_timestamp: int
    last_caught_up_timestamp: int


class DescribeQuorumAnswerObserver(TypedDict, total=False):
    replica_id: int
    replica_directory_id: TopicId | None
    log_end_offset: int
    last_fetch_timestamp: int
    last_caught_up_timestamp: int


class DescribeQuorumAnswerPartition(TypedDict, total=False):
    partition_index: int
    error_code: int
    error_message: str | None
    leader_id: int
    leader_epoch: int
    high_watermark: int
    current_voters: Array[DescribeQuorumAnswerCurrentVoter]
    observers: Array[DescribeQuorumAnswerObserver]


class DescribeQuorumAnswerTopic(TypedDict, total=False):
    topic_name: str
    partitions: Array[DescribeQuorumAnswerPartition]


class DescribeQuorumAnswerListener(TypedDict, total=False):
    name: str
    host: str
    port: int


class DescribeQuorumAnswerNode(TypedDict, total=False):
    node_id: int
    listeners: Array[DescribeQuorumAnswerListener]


class DescribeQuorumAnswer(Protocol):
    def __call__(
        self,
        *,
        error_code: int = ...,
        error_message: str | None = ...,
        topics: Array[DescribeQuorumAnswerTopic] = ...,
        nodes: Array[DescribeQuorumAnswerNode] = ...,
    ) -> None: ...


class DescribeQuorum(
    ApiTypes[
        DescribeQuorumRequest,
        DescribeQuorumAnswer,
        DescribeQuorumResponse,
    ]
):
    pass
