"""Generated from `messages/OffsetDelete.txt` by `make types`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, TypedDict

from cordwood.wire.api_types import ApiTypes, Array
from cordwood.wire.encoding.schema import Entity


class OffsetDelete(
    ApiTypes[
        "OffsetDelete.Request",
        "OffsetDelete.Answer",
        "OffsetDelete.Response",
    ]
):
    class RequestPartition(Entity):
        partition_index: int

    class RequestTopic(Entity):
        name: str
        partitions: Sequence[OffsetDelete.RequestPartition]

    class Request(Entity):
        group_id: str
        topics: Sequence[OffsetDelete.RequestTopic]

    class ResponsePartition(Entity):
        partition_index: int
        error_code: int

    class ResponseTopic(Entity):
        name: str
        partitions: Sequence[OffsetDelete.ResponsePartition]

    class Response(Entity):
        error_code: int
        throttle_time_ms: int
        topics: Sequence[OffsetDelete.ResponseTopic]

    class AnswerPartition(TypedDict, total=False):
        partition_index: int
        error_code: int

    class AnswerTopic(TypedDict, total=False):
        name: str
        partitions: Array[OffsetDelete.AnswerPartition]

    class Answer(Protocol):
        def __call__(
            self,
            *,
            error_code: int = ...,
            throttle_time_ms: int = ...,
            topics: Array[OffsetDelete.AnswerTopic] = ...,
        ) -> None: ...
