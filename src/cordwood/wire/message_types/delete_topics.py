"""Generated from `messages/DeleteTopics.txt` by `make types`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, TypedDict

from cordwood.model.identifiers import TopicId
from cordwood.wire.api_types import ApiTypes, Array
from cordwood.wire.encoding.schema import Entity


class DeleteTopics(
    ApiTypes[
        "DeleteTopics.Request",
        "DeleteTopics.Answer",
        "DeleteTopics.Response",
    ]
):
    class RequestTopic(Entity):
        name: str | None
        topic_id: TopicId | None

    class Request(Entity):
        topics: Sequence[DeleteTopics.RequestTopic]
        topic_names: Sequence[str]
        timeout_ms: int

    class ResponseResponse(Entity):
        name: str | None
        topic_id: TopicId | None
        error_code: int
        error_message: str | None

    class Response(Entity):
        throttle_time_ms: int
        responses: Sequence[DeleteTopics.ResponseResponse]

    class AnswerResponse(TypedDict, total=False):
        name: str | None
        topic_id: TopicId | None
        error_code: int
        error_message: str | None

    class Answer(Protocol):
        def __call__(
            self,
            *,
            throttle_time_ms: int = ...,
            responses: Array[DeleteTopics.AnswerResponse] = ...,
        ) -> None: ...
