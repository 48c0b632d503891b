"""Generated from `messages/ReadShareGroupState.txt` by `make types`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, TypedDict

from cordwood.model.identifiers import TopicId
from cordwood.wire.api_types import ApiTypes, Array
from cordwood.wire.encoding.schema import Entity


class ReadShareGroupState(
    ApiTypes[
        "ReadShareGroupState.Request",
        "ReadShareGroupState.Answer",
        "ReadShareGroupState.Response",
    ]
):
    class RequestPartition(Entity):
        partition: int
        leader_epoch: int

    class RequestTopic(Entity):
        topic_id: TopicId | None
        partitions: Sequence[ReadShareGroupState.RequestPartition]

    class Request(Entity):
        group_id: str
        topics: Sequence[ReadShareGroupState.RequestTopic]

    class ResponseStateBatch(Entity):
        first_offset: int
        last_offset: int
        delivery_state: int
        delivery_count: int

    class ResponsePartition(Entity):
        partition: int
        error_code: int
        error_message: str | None
        state_epoch: int
        start_offset: int
        state_batches: Sequence[ReadShareGroupState.ResponseStateBatch]

    class ResponseResult(Entity):
        topic_id: TopicId | None
        partitions: Sequence[ReadShareGroupState.ResponsePartition]

    class Response(Entity):
        results: Sequence[ReadShareGroupState.ResponseResult]

    class AnswerStateBatch(TypedDict, total=False):
        first_offset: int
        last_offset: int
        delivery_state: int
        delivery_count: int

    class AnswerPartition(TypedDict, total=False):
        partition: int
        error_code: int
        error_message: str | None
        state_epoch: int
        start_offset: int
        state_batches: Array[ReadShareGroupState.AnswerStateBatch]

    class AnswerResult(TypedDict, total=False):
        topic_id: TopicId | None
        partitions: Array[ReadShareGroupState.AnswerPartition]

    class Answer(Protocol):
        def __call__(
            self,
            *,
            results: Array[ReadShareGroupState.AnswerResult] = ...,
        ) -> None: ...
