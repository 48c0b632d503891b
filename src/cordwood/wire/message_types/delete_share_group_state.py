"""Generated from `messages/DeleteShareGroupState.txt` by `make types`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, TypedDict

from cordwood.model.identifiers import TopicId
from cordwood.wire.api_types import ApiTypes, Array
from cordwood.wire.encoding.schema import Entity


class DeleteShareGroupState(
    ApiTypes[
        "DeleteShareGroupState.Request",
        "DeleteShareGroupState.Answer",
        "DeleteShareGroupState.Response",
    ]
):
    class RequestPartition(Entity):
        partition: int

    class RequestTopic(Entity):
        topic_id: TopicId | None
        partitions: Sequence[DeleteShareGroupState.RequestPartition]

    class Request(Entity):
        group_id: str
        topics: Sequence[DeleteShareGroupState.RequestTopic]

    class ResponsePartition(Entity):
        partition: int
        error_code: int
        error_message: str | None

    class ResponseResult(Entity):
        topic_id: TopicId | None
        partitions: Sequence[DeleteShareGroupState.ResponsePartition]

    class Response(Entity):
        results: Sequence[DeleteShareGroupState.ResponseResult]

    class AnswerPartition(TypedDict, total=False):
        partition: int
        error_code: int
        error_message: str | None

    class AnswerResult(TypedDict, total=False):
        topic_id: TopicId | None
        partitions: Array[DeleteShareGroupState.AnswerPartition]

    class Answer(Protocol):
        def __call__(
            self,
            *,
            results: Array[DeleteShareGroupState.AnswerResult] = ...,
        ) -> None: ...
