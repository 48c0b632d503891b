"""Generated from `messages/DeleteShareGroupOffsets.txt` by `make types`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, TypedDict

from cordwood.model.identifiers import TopicId
from cordwood.wire.api_types import ApiTypes, Array
from cordwood.wire.encoding.schema import Entity


class DeleteShareGroupOffsets(
    ApiTypes[
        "DeleteShareGroupOffsets.Request",
        "DeleteShareGroupOffsets.Answer",
        "DeleteShareGroupOffsets.Response",
    ]
):
    class RequestTopic(Entity):
        topic_name: str

    class Request(Entity):
        group_id: str
        topics: Sequence[DeleteShareGroupOffsets.RequestTopic]

    class ResponseResponse(Entity):
        topic_name: str
        topic_id: TopicId | None
        error_code: int
        error_message: str | None

    class Response(Entity):
        throttle_time_ms: int
        error_code: int
        error_message: str | None
        responses: Sequence[DeleteShareGroupOffsets.ResponseResponse]

    class AnswerResponse(TypedDict, total=False):
        topic_name: str
        topic_id: TopicId | None
        error_code: int
        error_message: str | None

    class Answer(Protocol):
        def __call__(
            self,
            *,
            throttle_time_ms: int = ...,
            error_code: int = ...,
            error_message: str | None = ...,
            responses: Array[DeleteShareGroupOffsets.AnswerResponse] = ...,
        ) -> None: ...
