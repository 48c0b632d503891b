"""Generated from `messages/InitializeShareGroupState.txt` by `make types`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, TypedDict

from cordwood.model.identifiers import TopicId
from cordwood.wire.api_types import ApiTypes, Array
from cordwood.wire.encoding.schema import Entity


class InitializeShareGroupState(
    ApiTypes[
        "InitializeShareGroupState.Request",
        "InitializeShareGroupState.Answer",
        "InitializeShareGroupState.Response",
    ]
):
    class RequestPartition(Entity):
        partition: int
        state_epoch: int
        start_offset: int

    class RequestTopic(Entity):
        topic_id: TopicId | None
        partitions: Sequence[InitializeShareGroupState.RequestPartition]

    class Request(Entity):
        group_id: str
        topics: Sequence[InitializeShareGroupState.RequestTopic]

    class ResponsePartition(Entity):
        partition: int
        error_code: int
        error_message: str | None

    class ResponseResult(Entity):
        topic_id: TopicId | None
        partitions: Sequence[InitializeShareGroupState.ResponsePartition]

    class Response(Entity):
        results: Sequence[InitializeShareGroupState.ResponseResult]

    class AnswerPartition(TypedDict, total=False):
        partition: int
        error_code: int
        error_message: str | None

    class AnswerResult(TypedDict, total=False):
        topic_id: TopicId | None
        partitions: Array[InitializeShareGroupState.AnswerPartition]

    class Answer(Protocol):
        def __call__(
            self,
            *,
            results: Array[InitializeShareGroupState.AnswerResult] = ...,
        ) -> None: ...
