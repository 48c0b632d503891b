"""Generated from `messages/ReadShareGroupStateSummary.txt` by `make types`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, TypedDict

from cordwood.model.identifiers import TopicId
from cordwood.wire.api_types import ApiTypes, Array
from cordwood.wire.encoding.schema import Entity


class ReadShareGroupStateSummary(
    ApiTypes[
        "ReadShareGroupStateSummary.Request",
        "ReadShareGroupStateSummary.Answer",
        "ReadShareGroupStateSummary.Response",
    ]
):
    class RequestPartition(Entity):
        partition: int
        leader_epoch: int

    class RequestTopic(Entity):
        topic_id: TopicId | None
        partitions: Sequence[ReadShareGroupStateSummary.RequestPartition]

    class Request(Entity):
        group_id: str
        topics: Sequence[ReadShareGroupStateSummary.RequestTopic]

    class ResponsePartition(Entity):
        partition: int
        error_code: int
        error_message: str | None
        state_epoch: int
        leader_epoch: int
        start_offset: int
        delivery_complete_count: int

    class ResponseResult(Entity):
        topic_id: TopicId | None
        partitions: Sequence[ReadShareGroupStateSummary.ResponsePartition]

    class Response(Entity):
        results: Sequence[ReadShareGroupStateSummary.ResponseResult]

    class AnswerPartition(TypedDict, total=False):
        partition: int
        error_code: int
        error_message: str | None
        state_epoch: int
        leader_epoch: int
        start_offset: int
        delivery_complete_count: int

    class AnswerResult(TypedDict, total=False):
        topic_id: TopicId | None
        partitions: Array[ReadShareGroupStateSummary.AnswerPartition]

    class Answer(Protocol):
        def __call__(
            self,
            *,
            results: Array[ReadShareGroupStateSummary.AnswerResult] = ...,
        ) -> None: ...
