"""Generated from `messages/TxnOffsetCommit.txt` by `make types`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, TypedDict

from cordwood.model.identifiers import TopicId
from cordwood.wire.api_types import ApiTypes, Array
from cordwood.wire.encoding.schema import Entity


class TxnOffsetCommit(
    ApiTypes[
        "TxnOffsetCommit.Request",
        "TxnOffsetCommit.Answer",
        "TxnOffsetCommit.Response",
    ]
):
    class RequestPartition(Entity):
        partition_index: int
        committed_offset: int
        committed_leader_epoch: int
        committed_metadata: str | None

    class RequestTopic(Entity):
        name: str
        topic_id: TopicId | None
        partitions: Sequence[TxnOffsetCommit.RequestPartition]

    class Request(Entity):
        transactional_id: str
        group_id: str
        producer_id: int
        producer_epoch: int
        generation_id_or_member_epoch: int
        member_id: str
        group_instance_id: str | None
        topics: Sequence[TxnOffsetCommit.RequestTopic]

    class ResponsePartition(Entity):
        partition_index: int
        error_code: int

    class ResponseTopic(Entity):
        name: str
        topic_id: TopicId | None
        partitions: Sequence[TxnOffsetCommit.ResponsePartition]

    class Response(Entity):
        throttle_time_ms: int
        topics: Sequence[TxnOffsetCommit.ResponseTopic]

    class AnswerPartition(TypedDict, total=False):
        partition_index: int
        error_code: int

    class AnswerTopic(TypedDict, total=False):
        name: str
        topic_id: TopicId | None
        partitions: Array[TxnOffsetCommit.AnswerPartition]

    class Answer(Protocol):
        def __call__(
            self,
            *,
            throttle_time_ms: int = ...,
            topics: Array[TxnOffsetCommit.AnswerTopic] = ...,
        ) -> None: ...
