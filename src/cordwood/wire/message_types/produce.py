"""Generated from `messages/Produce.txt` by `make types`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, TypedDict

from cordwood.model.identifiers import TopicId
from cordwood.wire.api_types import ApiTypes, Array
from cordwood.wire.encoding.schema import Entity


class Produce(
    ApiTypes[
        "Produce.Request",
        "Produce.Answer",
        "Produce.Response",
    ]
):
    class RequestPartitionData(Entity):
        index: int
        records: bytes | None

    class RequestTopicData(Entity):
        name: str
        topic_id: TopicId | None
        partition_data: Sequence[Produce.RequestPartitionData]

    class Request(Entity):
        transactional_id: str | None
        acks: int
        timeout_ms: int
        topic_data: Sequence[Produce.RequestTopicData]

    class ResponseRecordError(Entity):
        batch_index: int
        batch_index_error_message: str | None

    class ResponseCurrentLeader(Entity):
        leader_id: int
        leader_epoch: int

    class ResponsePartitionResponse(Entity):
        index: int
        error_code: int
        base_offset: int
        log_append_time_ms: int
        log_start_offset: int
        record_errors: Sequence[Produce.ResponseRecordError]
        error_message: str | None
        current_leader: Produce.ResponseCurrentLeader

    class ResponseResponse(Entity):
        name: str
        topic_id: TopicId | None
        partition_responses: Sequence[Produce.ResponsePartitionResponse]

    class ResponseNodeEndpoint(Entity):
        node_id: int
        host: str
        port: int
        rack: str | None

    class Response(Entity):
        responses: Sequence[Produce.ResponseResponse]
        throttle_time_ms: int
        node_endpoints: Sequence[Produce.ResponseNodeEndpoint]

    class AnswerRecordError(TypedDict, total=False):
        batch_index: int
        batch_index_error_message: str | None

    class AnswerCurrentLeader(TypedDict, total=False):
        leader_id: int
        leader_epoch: int

    class AnswerPartitionResponse(TypedDict, total=False):
        index: int
        error_code: int
        base_offset: int
        log_append_time_ms: int
        log_start_offset: int
        record_errors: Array[Produce.AnswerRecordError]
        error_message: str | None
        current_leader: Produce.AnswerCurrentLeader

    class AnswerResponse(TypedDict, total=False):
        name: str
        topic_id: TopicId | None
        partition_responses: Array[Produce.AnswerPartitionResponse]

    class AnswerNodeEndpoint(TypedDict, total=False):
        node_id: int
        host: str
        port: int
        rack: str | None

    class Answer(Protocol):
        def __call__(
            self,
            *,
            responses: Array[Produce.AnswerResponse] = ...,
            throttle_time_ms: int = ...,
            node_endpoints: Array[Produce.AnswerNodeEndpoint] = ...,
        ) -> None: ...
