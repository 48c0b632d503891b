"""Generated from `messages/CreateTopics.txt` by `make types`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, TypedDict

from cordwood.model.identifiers import TopicId
from cordwood.wire.api_types import ApiTypes, Array
from cordwood.wire.encoding.schema import Entity


class CreateTopics(
    ApiTypes[
        "CreateTopics.Request",
        "CreateTopics.Answer",
        "CreateTopics.Response",
    ]
):
    class RequestAssignment(Entity):
        partition_index: int
        broker_ids: Sequence[int]

    class RequestConfig(Entity):
        name: str
        value: str | None

    class RequestTopic(Entity):
        name: str
        num_partitions: int
        replication_factor: int
        assignments: Sequence[CreateTopics.RequestAssignment]
        configs: Sequence[CreateTopics.RequestConfig]

    class Request(Entity):
        topics: Sequence[CreateTopics.RequestTopic]
        timeout_ms: int
        validate_only: bool

    class ResponseConfig(Entity):
        name: str
        value: str | None
        read_only: bool
        config_source: int
        is_sensitive: bool

    class ResponseTopic(Entity):
        name: str
        topic_id: TopicId | None
        error_code: int
        error_message: str | None
        topic_config_error_code: int
        num_partitions: int
        replication_factor: int
        configs: Sequence[CreateTopics.ResponseConfig] | None

    class Response(Entity):
        throttle_time_ms: int
        topics: Sequence[CreateTopics.ResponseTopic]

    class AnswerConfig(TypedDict, total=False):
        name: str
        value: str | None
        read_only: bool
        config_source: int
        is_sensitive: bool

    class AnswerTopic(TypedDict, total=False):
        name: str
        topic_id: TopicId | None
        error_code: int
        error_message: str | None
        topic_config_error_code: int
        num_partitions: int
        replication_factor: int
        configs: Array[CreateTopics.AnswerConfig] | None

    class Answer(Protocol):
        def __call__(
            self,
            *,
            throttle_time_ms: int = ...,
            topics: Array[CreateTopics.AnswerTopic] = ...,
        ) -> None: ...
