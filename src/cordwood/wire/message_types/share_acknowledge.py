"""Generated from `messages/ShareAcknowledge.txt` by `make types`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, TypedDict

from cordwood.model.identifiers import TopicId
from cordwood.wire.api_types import ApiTypes, Array
from cordwood.wire.encoding.schema import Entity


class ShareAcknowledge(
    ApiTypes[
        "ShareAcknowledge.Request",
        "ShareAcknowledge.Answer",
        "ShareAcknowledge.Response",
    ]
):
    class RequestAcknowledgementBatch(Entity):
        first_offset: int
        last_offset: int
        acknowledge_types: Sequence[int]

    class RequestPartition(Entity):
        partition_index: int
        acknowledgement_batches: Sequence[ShareAcknowledge.RequestAcknowledgementBatch]

    class RequestTopic(Entity):
        topic_id: TopicId | None
        partitions: Sequence[ShareAcknowledge.RequestPartition]

    class Request(Entity):
        group_id: str | None
        member_id: str | None
        share_session_epoch: int
        is_renew_ack: bool
        topics: Sequence[ShareAcknowledge.RequestTopic]

    class ResponseCurrentLeader(Entity):
        leader_id: int
        leader_epoch: int

    class ResponsePartition(Entity):
        partition_index: int
        error_code: int
        error_message: str | None
        current_leader: ShareAcknowledge.ResponseCurrentLeader

    class ResponseResponse(Entity):
        topic_id: TopicId | None
        partitions: Sequence[ShareAcknowledge.ResponsePartition]

    class ResponseNodeEndpoint(Entity):
        node_id: int
        host: str
        port: int
        rack: str | None

    class Response(Entity):
        throttle_time_ms: int
        error_code: int
        error_message: str | None
        acquisition_lock_timeout_ms: int
        responses: Sequence[ShareAcknowledge.ResponseResponse]
        node_endpoints: Sequence[ShareAcknowledge.ResponseNodeEndpoint]

    class AnswerCurrentLeader(TypedDict, total=False):
        leader_id: int
        leader_epoch: int

    class AnswerPartition(TypedDict, total=False):
        partition_index: int
        error_code: int
        error_message: str | None
        current_leader: ShareAcknowledge.AnswerCurrentLeader

    class AnswerResponse(TypedDict, total=False):
        topic_id: TopicId | None
        partitions: Array[ShareAcknowledge.AnswerPartition]

    class AnswerNodeEndpoint(TypedDict, total=False):
        node_id: int
        host: str
        port: int
        rack: str | None

    class Answer(Protocol):
        def __call__(
            self,
            *,
            throttle_time_ms: int = ...,
            error_code: int = ...,
            error_message: str | None = ...,
            acquisition_lock_timeout_ms: int = ...,
            responses: Array[ShareAcknowledge.AnswerResponse] = ...,
            node_endpoints: Array[ShareAcknowledge.AnswerNodeEndpoint] = ...,
        ) -> None: ...
