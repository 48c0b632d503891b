"""Generated from `messages/DeleteRecords.txt` by `make types`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, TypedDict

from cordwood.wire.api_types import ApiTypes, Array
from cordwood.wire.encoding.schema import Entity


class DeleteRecords(
    ApiTypes[
        "DeleteRecords.Request",
        "DeleteRecords.Answer",
        "DeleteRecords.Response",
    ]
):
    class RequestPartition(Entity):
        partition_index: int
        offset: int

    class RequestTopic(Entity):
        name: str
        partitions: Sequence[DeleteRecords.RequestPartition]

    class Request(Entity):
        topics: Sequence[DeleteRecords.RequestTopic]
        timeout_ms: int

    class ResponsePartition(Entity):
        partition_index: int
        low_watermark: int
        error_code: int

    class ResponseTopic(Entity):
        name: str
        partitions: Sequence[DeleteRecords.ResponsePartition]

    class Response(Entity):
        throttle_time_ms: int
        topics: Sequence[DeleteRecords.ResponseTopic]

    class AnswerPartition(TypedDict, total=False):
        partition_index: int
        low_watermark: int
        error_code: int

    class AnswerTopic(TypedDict, total=False):
        name: str
        partitions: Array[DeleteRecords.AnswerPartition]

    class Answer(Protocol):
        def __call__(
            self,
            *,
            throttle_time_ms: int = ...,
            topics: Array[DeleteRecords.AnswerTopic] = ...,
        ) -> None: ...
