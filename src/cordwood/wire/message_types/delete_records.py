"""Generated from `messages/DeleteRecords.txt` by `make types`."""

from collections.abc import Sequence
from typing import Protocol, TypedDict

from cordwood.wire.api_types import ApiTypes, Array
from cordwood.wire.schema import Entity


class DeleteRecordsRequestPartition(Entity):
    partition_index: int
    offset: int


class DeleteRecordsRequestTopic(Entity):
    name: str
    partitions: Sequence[DeleteRecordsRequestPartition]


class DeleteRecordsRequest(Entity):
    topics: Sequence[DeleteRecordsRequestTopic]
    timeout_ms: int


class DeleteRecordsResponsePartition(Entity):
    partition_index: int
    low_watermark: int
    error_code: int


class DeleteRecordsResponseTopic(Entity):
    name: str
    partitions: Sequence[DeleteRecordsResponsePartition]


class DeleteRecordsResponse(Entity):
    throttle_time_ms: int
    topics: Sequence[DeleteRecordsResponseTopic]


class DeleteRecordsAnswerPartition(TypedDict, total=False):
    partition_index: int
    low_watermark: int
    error_code: int


class DeleteRecordsAnswerTopic(TypedDict, total=False):
    name: str
    partitions: Array[DeleteRecordsAnswerPartition]


class DeleteRecordsAnswer(Protocol):
    def __call__(
        self,
        *,
        throttle_time_ms: int = ...,
        topics: Array[DeleteRecordsAnswerTopic] = ...,
    ) -> None: ...


class DeleteRecords(
    ApiTypes[
        DeleteRecordsRequest,
        DeleteRecordsAnswer,
        DeleteRecordsResponse,
    ]
):
    pass
