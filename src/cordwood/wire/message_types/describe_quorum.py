"""Generated from `messages/DescribeQuorum.txt` by `make types`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, TypedDict

from cordwood.model.identifiers import TopicId
from cordwood.wire.api_types import ApiTypes, Array
from cordwood.wire.encoding.schema import Entity


class DescribeQuorum(
    ApiTypes[
        "DescribeQuorum.Request",
        "DescribeQuorum.Answer",
        "DescribeQuorum.Response",
    ]
):
    class RequestPartition(Entity):
        partition_index: int

    class RequestTopic(Entity):
        topic_name: str
        partitions: Sequence[DescribeQuorum.RequestPartition]

    class Request(Entity):
        topics: Sequence[DescribeQuorum.RequestTopic]

    class ResponseCurrentVoter(Entity):
        replica_id: int
        replica_directory_id: TopicId | None
        log_end_offset: int
        last_fetch_timestamp: int
        last_caught_up_timestamp: int

    class ResponseObserver(Entity):
        replica_id: int
        replica_directory_id: TopicId | None
        log_end_offset: int
        last_fetch_timestamp: int
        last_caught_up_timestamp: int

    class ResponsePartition(Entity):
        partition_index: int
        error_code: int
        error_message: str | None
        leader_id: int
        leader_epoch: int
        high_watermark: int
        current_voters: Sequence[DescribeQuorum.ResponseCurrentVoter]
        observers: Sequence[DescribeQuorum.ResponseObserver]

    class ResponseTopic(Entity):
        topic_name: str
        partitions: Sequence[DescribeQuorum.ResponsePartition]

    class ResponseListener(Entity):
        name: str
        host: str
        port: int

    class ResponseNode(Entity):
        node_id: int
        listeners: Sequence[DescribeQuorum.ResponseListener]

    class Response(Entity):
        error_code: int
        error_message: str | None
        topics: Sequence[DescribeQuorum.ResponseTopic]
        nodes: Sequence[DescribeQuorum.ResponseNode]

    class AnswerCurrentVoter(TypedDict, total=False):
        replica_id: int
        replica_directory_id: TopicId | None
        log_end_offset: int
        last_fetch_timestamp: int
        last_caught_up_timestamp: int

    class AnswerObserver(TypedDict, total=False):
        replica_id: int
        replica_directory_id: TopicId | None
        log_end_offset: int
        last_fetch_timestamp: int
        last_caught_up_timestamp: int

    class AnswerPartition(TypedDict, total=False):
        partition_index: int
        error_code: int
        error_message: str | None
        leader_id: int
        leader_epoch: int
        high_watermark: int
        current_voters: Array[DescribeQuorum.AnswerCurrentVoter]
        observers: Array[DescribeQuorum.AnswerObserver]

    class AnswerTopic(TypedDict, total=False):
        topic_name: str
        partitions: Array[DescribeQuorum.AnswerPartition]

    class AnswerListener(TypedDict, total=False):
        name: str
        host: str
        port: int

    class AnswerNode(TypedDict, total=False):
        node_id: int
        listeners: Array[DescribeQuorum.AnswerListener]

    class Answer(Protocol):
        def __call__(
            self,
            *,
            error_code: int = ...,
            error_message: str | None = ...,
            topics: Array[DescribeQuorum.AnswerTopic] = ...,
            nodes: Array[DescribeQuorum.AnswerNode] = ...,
        ) -> None: ...
