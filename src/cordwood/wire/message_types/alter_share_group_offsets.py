"""Generated from `messages/AlterShareGroupOffsets.txt` by `make types`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, TypedDict

from cordwood.model.identifiers import TopicId
from cordwood.wire.api_types import ApiTypes, Array
from cordwood.wire.encoding.schema import Entity


class AlterShareGroupOffsets(
    ApiTypes[
        "AlterShareGroupOffsets.Request",
        "AlterShareGroupOffsets.Answer",
        "AlterShareGroupOffsets.Response",
    ]
):
    class RequestPartition(Entity):
        partition_index: int
        start_offset: int

    class RequestTopic(Entity):
        topic_name: str
        partitions: Sequence[AlterShareGroupOffsets.RequestPartition]

    class Request(Entity):
        group_id: str
        topics: Sequence[AlterShareGroupOffsets.RequestTopic]

    class ResponsePartition(Entity):
        partition_index: int
        error_code: int
        error_message: str | None

    class ResponseResponse(Entity):
        topic_name: str
        topic_id: TopicId | None
        partitions: Sequence[AlterShareGroupOffsets.ResponsePartition]

    class Response(Entity):
        throttle_time_ms: int
        error_code: int
        error_message: str | None
        responses: Sequence[AlterShareGroupOffsets.ResponseResponse]

    class AnswerPartition(TypedDict, total=False):
        partition_index: int
        error_code: int
        error_message: str | None

    class AnswerResponse(TypedDict, total=False):
        topic_name: str
        topic_id: TopicId | None
        partitions: Array[AlterShareGroupOffsets.AnswerPartition]

    class Answer(Protocol):
        def __call__(
            self,
            *,
            throttle_time_ms: int = ...,
            error_code: int = ...,
            error_message: str | None = ...,
            responses: Array[AlterShareGroupOffsets.AnswerResponse] = ...,
        ) -> None: ...
