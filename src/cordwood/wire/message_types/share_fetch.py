"""Generated from `messages/ShareFetch.txt` by `make types`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, TypedDict

from cordwood.model.identifiers import TopicId
from cordwood.wire.api_types import ApiTypes, Array
from cordwood.wire.encoding.schema import Entity


class ShareFetch(
    ApiTypes[
        "ShareFetch.Request",
        "ShareFetch.Answer",
        "ShareFetch.Response",
    ]
):
    class RequestAcknowledgementBatch(Entity):
        first_offset: int
        last_offset: int
        acknowledge_types: Sequence[int]

    class RequestPartition(Entity):
        partition_index: int
        acknowledgement_batches: Sequence[ShareFetch.RequestAcknowledgementBatch]

    class RequestTopic(Entity):
        topic_id: TopicId | None
        partitions: Sequence[ShareFetch.RequestPartition]

    class RequestForgottenTopicsData(Entity):
        topic_id: TopicId | None
        partitions: Sequence[int]

    class Request(Entity):
        group_id: str | None
        member_id: str | None
        share_session_epoch: int
        max_wait_ms: int
        min_bytes: int
        max_bytes: int
        max_records: int
        batch_size: int
        share_acquire_mode: int
        is_renew_ack: bool
        topics: Sequence[ShareFetch.RequestTopic]
        forgotten_topics_data: Sequence[ShareFetch.RequestForgottenTopicsData]

    class ResponseCurrentLeader(Entity):
        leader_id: int
        leader_epoch: int

    class ResponseAcquiredRecord(Entity):
        first_offset: int
        last_offset: int
        delivery_count: int

    class ResponsePartition(Entity):
        partition_index: int
        error_code: int
        error_message: str | None
        acknowledge_error_code: int
        acknowledge_error_message: str | None
        current_leader: ShareFetch.ResponseCurrentLeader
        records: bytes | None
        acquired_records: Sequence[ShareFetch.ResponseAcquiredRecord]

    class ResponseResponse(Entity):
        topic_id: TopicId | None
        partitions: Sequence[ShareFetch.ResponsePartition]

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
        responses: Sequence[ShareFetch.ResponseResponse]
        node_endpoints: Sequence[ShareFetch.ResponseNodeEndpoint]

    class AnswerCurrentLeader(TypedDict, total=False):
        leader_id: int
        leader_epoch: int

    class AnswerAcquiredRecord(TypedDict, total=False):
        first_offset: int
        last_offset: int
        delivery_count: int

    class AnswerPartition(TypedDict, total=False):
        partition_index: int
        error_code: int
        error_message: str | None
        acknowledge_error_code: int
        acknowledge_error_message: str | None
        current_leader: ShareFetch.AnswerCurrentLeader
        records: bytes | None
        acquired_records: Array[ShareFetch.AnswerAcquiredRecord]

    class AnswerResponse(TypedDict, total=False):
        topic_id: TopicId | None
        partitions: Array[ShareFetch.AnswerPartition]

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
            responses: Array[ShareFetch.AnswerResponse] = ...,
            node_endpoints: Array[ShareFetch.AnswerNodeEndpoint] = ...,
        ) -> None: ...
