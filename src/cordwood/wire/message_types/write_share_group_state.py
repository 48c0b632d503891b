"""Generated from `messages/WriteShareGroupState.txt` by `make types`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, TypedDict

from cordwood.model.identifiers import TopicId
from cordwood.wire.api_types import ApiTypes, Array
from cordwood.wire.encoding.schema import Entity


class WriteShareGroupState(
    ApiTypes[
        "WriteShareGroupState.Request",
        "WriteShareGroupState.Answer",
        "WriteShareGroupState.Response",
    ]
):
    class RequestStateBatch(Entity):
        first_offset: int
        last_offset: int
        delivery_state: int
        delivery_count: int

    class RequestPartition(Entity):
        partition: int
        state_epoch: int
        leader_epoch: int
        start_offset: int
        delivery_complete_count: int
        state_batches: Sequence[WriteShareGroupState.RequestStateBatch]

    class RequestTopic(Entity):
        topic_id: TopicId | None
        partitions: Sequence[WriteShareGroupState.RequestPartition]

    class Request(Entity):
        group_id: str
        topics: Sequence[WriteShareGroupState.RequestTopic]

    class ResponsePartition(Entity):
        partition: int
        error_code: int
        error_message: str | None

    class ResponseResult(Entity):
        topic_id: TopicId | None
        partitions: Sequence[WriteShareGroupState.ResponsePartition]

    class Response(Entity):
        results: Sequence[WriteShareGroupState.ResponseResult]

    class AnswerPartition(TypedDict, total=False):
        partition: int
        error_code: int
        error_message: str | None

    class AnswerResult(TypedDict, total=False):
        topic_id: TopicId | None
        partitions: Array[WriteShareGroupState.AnswerPartition]

    class Answer(Protocol):
        def __call__(
            self,
            *,
            results: Array[WriteShareGroupState.AnswerResult] = ...,
        ) -> None: ...
