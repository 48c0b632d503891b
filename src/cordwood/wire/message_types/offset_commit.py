"""Generated from `messages/OffsetCommit.txt` by `make types`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, TypedDict

from cordwood.model.identifiers import TopicId
from cordwood.wire.api_types import ApiTypes, Array
from cordwood.wire.encoding.schema import Entity


class OffsetCommit(
    ApiTypes[
        "OffsetCommit.Request",
        "OffsetCommit.Answer",
        "OffsetCommit.Response",
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
        partitions: Sequence[OffsetCommit.RequestPartition]

    class Request(Entity):
        group_id: str
        generation_id_or_member_epoch: int
        member_id: str
        group_instance_id: str | None
        retention_time_ms: int
        topics: Sequence[OffsetCommit.RequestTopic]

    class ResponsePartition(Entity):
        partition_index: int
        error_code: int

    class ResponseTopic(Entity):
        name: str
        topic_id: TopicId | None
        partitions: Sequence[OffsetCommit.ResponsePartition]

    class Response(Entity):
        throttle_time_ms: int
        topics: Sequence[OffsetCommit.ResponseTopic]

    class AnswerPartition(TypedDict, total=False):
        partition_index: int
        error_code: int

    class AnswerTopic(TypedDict, total=False):
        name: str
        topic_id: TopicId | None
        partitions: Array[OffsetCommit.AnswerPartition]

    class Answer(Protocol):
        def __call__(
            self,
            *,
            throttle_time_ms: int = ...,
            topics: Array[OffsetCommit.AnswerTopic] = ...,
        ) -> None: ...
