"""Generated from `messages/Metadata.txt` by `make types`."""

from collections.abc import Sequence
from typing import Protocol, TypedDict

from cordwood.model.identifiers import TopicId
from cordwood.wire.api_types import ApiTypes, Array
from cordwood.wire.schema import Entity


class MetadataRequestTopic(Entity):
    topic_id: TopicId | None
    name: str | None


class MetadataRequest(Entity):
    topics: Sequence[MetadataRequestTopic] | None
    allow_auto_topic_creation: bool
    include_cluster_authorized_operations: bool
    include_topic_authorized_operations: bool


class MetadataResponseBroker(Entity):
    node_id: int
    host: str
    port: int
    rack: str | None


class MetadataResponsePartition(Entity):
    error_code: int
    partition_index: int
    leader_id: int
    leader_epoch: int
    replica_nodes: Sequence[int]
    isr_nodes: Sequence[int]
    offline_replicas: Sequence[int]


class MetadataResponseTopic(Entity):
    error_code: int
    name: str | None
    topic_id: TopicId | None
    is_internal: bool
    partitions: Sequence[MetadataResponsePartition]
    topic_authorized_operations: int


class MetadataResponse(Entity):
    throttle_time_ms: int
    brokers: Sequence[MetadataResponseBroker]
    cluster_id: str | None
    controller_id: int
    topics: Sequence[MetadataResponseTopic]
    cluster_authorized_operations: int
    error_code: int


class MetadataAnswerBroker(TypedDict, total=False):
    node_id: int
    host: str
    port: int
    rack: str | None


class MetadataAnswerPartition(TypedDict, total=False):
    error_code: int
    partition_index: int
    leader_id: int
    leader_epoch: int
    replica_nodes: Array[int]
    isr_nodes: Array[int]
    offline_replicas: Array[int]


class MetadataAnswerTopic(TypedDict, total=False):
    error_code: int
    name: str | None
    topic_id: TopicId | None
    is_internal: bool
    partitions: Array[MetadataAnswerPartition]
    topic_authorized_operations: int


class MetadataAnswer(Protocol):
    def __call__(
        self,
        *,
        throttle_time_ms: int = ...,
        brokers: Array[MetadataAnswerBroker] = ...,
        cluster_id: str | None = ...,
        controller_id: int = ...,
        topics: Array[MetadataAnswerTopic] = ...,
        cluster_authorized_operations: int = ...,
        error_code: int = ...,
    ) -> None: ...


class Metadata(
    ApiTypes[
        MetadataRequest,
        MetadataAnswer,
        MetadataResponse,
    ]
):
    pass
