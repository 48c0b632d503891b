"""Generated from `messages/CreateTopics.txt` by `make types`."""

from collections.abc import Sequence
from typing import Protocol, TypedDict

from cordwood.model.identifiers import TopicId
from cordwood.wire.api_types import ApiTypes, Array
from cordwood.wire.schema import Entity


class CreateTopicsRequestAssignment(Entity):
    partition_index: int
    broker_ids: Sequence[int]


class CreateTopicsRequestConfig(Entity):
    name: str
    value: str | None


class CreateTopicsRequestTopic(Entity):
    name: str
    num_partitions: int
    replication_factor: int
    assignments: Sequence[CreateTopicsRequestAssignment]
    configs: Sequence[CreateTopicsRequestConfig]


class CreateTopicsRequest(Entity):
    topics: Sequence[CreateTopicsRequestTopic]
    timeout_ms: int
    validate_only: bool


class CreateTopicsResponseConfig(Entity):
    name: str
    value: str | None
    read_only: bool
    config_source: int
    is_sensitive: bool


class CreateTopicsResponseTopic(Entity):
    name: str
    topic_id: TopicId | None
    error_code: int
    error_message: str | None
    topic_config_error_code: int
    num_partitions: int
    replication_factor: int
    configs: Sequence[CreateTopicsResponseConfig] | None


class CreateTopicsResponse(Entity):
    throttle_time_ms: int
    topics: Sequence[CreateTopicsResponseTopic]


class CreateTopicsAnswerConfig(TypedDict, total=False):
    name: str
    value: str | None
    read_only: bool
    config_source: int
    is_sensitive: bool


class CreateTopicsAnswerTopic(TypedDict, total=False):
    name: str
    topic_id: TopicId | None
    error_code: int
    error_message: str | None
    topic_config_error_code: int
    num_partitions: int
    replication_factor: int
    configs: Array[CreateTopicsAnswerConfig] | None


class CreateTopicsAnswer(Protocol):
    def __call__(
        self,
        *,
        throttle_time_ms: int = ...,
        topics: Array[CreateTopicsAnswerTopic] = ...,
    ) -> None: ...


class CreateTopics(
    ApiTypes[
        CreateTopicsRequest,
        CreateTopicsAnswer,
        CreateTopicsResponse,
    ]
):
    pass
