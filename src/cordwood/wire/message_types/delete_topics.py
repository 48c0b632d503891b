"""Generated from `messages/DeleteTopics.txt` by `make types`."""

from collections.abc import Sequence
from typing import Protocol, TypedDict

from cordwood.model.identifiers import TopicId
from cordwood.wire.api_types import ApiTypes, Array
from cordwood.wire.schema import Entity


class DeleteTopicsRequestTopic(Entity):
    name: str | None
    topic_id: TopicId | None


class DeleteTopicsRequest(Entity):
    topics: Sequence[DeleteTopicsRequestTopic]
    topic_names: Sequence[str]
    timeout_ms: int


class DeleteTopicsResponseResponse(Entity):
    name: str | None
    topic_id: TopicId | None
    error_code: int
    error_message: str | None


class DeleteTopicsResponse(Entity):
    throttle_time_ms: int
    responses: Sequence[DeleteTopicsResponseResponse]


class DeleteTopicsAnswerResponse(TypedDict, total=False):
    name: str | None
    topic_id: TopicId | None
    error_code: int
    error_message: str | None


class DeleteTopicsAnswer(Protocol):
    def __call__(
        self,
        *,
        throttle_time_ms: int = ...,
        responses: Array[DeleteTopicsAnswerResponse] = ...,
    ) -> None: ...


class DeleteTopics(
    ApiTypes[
        DeleteTopicsRequest,
        DeleteTopicsAnswer,
        DeleteTopicsResponse,
    ]
):
    pass
