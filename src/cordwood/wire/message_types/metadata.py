"""Generated from `messages/Metadata.txt` by `make types`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, TypedDict

from cordwood.model.identifiers import TopicId
from cordwood.wire.api_types import ApiTypes, Array
from cordwood.wire.encoding.schema import Entity


class Metadata(
    ApiTypes[
        "Metadata.Request",
        "Metadata.Answer",
        "Metadata.Response",
    ]
):
    class RequestTopic(Entity):
        topic_id: TopicId | None
        name: str | None

    class Request(Entity):
        topics: Sequence[Metadata.RequestTopic] | None
        allow_auto_topic_creation: bool
        include_cluster_authorized_operations: bool
        include_topic_authorized_operations: bool

    class ResponseBroker(Entity):
        node_id: int
        host: str
        port: int
        rack: str | None

    class ResponsePartition(Entity):
        error_code: int
        partition_index: int
        leader_id: int
        leader_epoch: int
        replica_nodes: Sequence[int]
        isr_nodes: Sequence[int]
        offline_replicas: Sequence[int]

    class ResponseTopic(Entity):
        error_code: int
        name: str | None
        topic_id: TopicId | None
        is_internal: bool
        partitions: Sequence[Metadata.ResponsePartition]
        topic_authorized_operations: int

    class Response(Entity):
        throttle_time_ms: int
        brokers: Sequence[Metadata.ResponseBroker]
        cluster_id: str | None
        controller_id: int
        topics: Sequence[Metadata.ResponseTopic]
        cluster_authorized_operations: int
        error_code: int

    class AnswerBroker(TypedDict, total=False):
        node_id: int
        host: str
        port: int
        rack: str | None

    class AnswerPartition(TypedDict, total=False):
        error_code: int
        partition_index: int
        leader_id: int
        leader_epoch: int
        replica_nodes: Array[int]
        isr_nodes: Array[int]
        offline_replicas: Array[int]

    class AnswerTopic(TypedDict, total=False):
        error_code: int
        name: str | None
        topic_id: TopicId | None
        is_internal: bool
        partitions: Array[Metadata.AnswerPartition]
        topic_authorized_operations: int

    class Answer(Protocol):
        def __call__(
            self,
            *,
            throttle_time_ms: int = ...,
            brokers: Array[Metadata.AnswerBroker] = ...,
            cluster_id: str | None = ...,
            controller_id: int = ...,
            topics: Array[Metadata.AnswerTopic] = ...,
            cluster_authorized_operations: int = ...,
            error_code: int = ...,
        ) -> None: ...
