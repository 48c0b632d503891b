"""Generated from `messages/OffsetDelete.txt` by `make types`."""

from collections.abc import Sequence
from typing import Protocol, TypedDict

from cordwood.wire.api_types import ApiTypes, Array
from cordwood.wire.schema import Entity


class OffsetDeleteRequestPartition(Entity):
    partition_index: int


class OffsetDeleteRequestTopic(Entity):
    name: str
    partitions: Sequence[OffsetDeleteRequestPartition]


class OffsetDeleteRequest(Entity):
    group_id: str
    topics: Sequence[OffsetDeleteRequestTopic]


class OffsetDeleteResponsePartition(Entity):
    partition_index: int
    error_code: int


class OffsetDeleteResponseTopic(Entity):
    name: str
    partitions: Sequence[OffsetDeleteResponsePartition]


class OffsetDeleteResponse(Entity):
    error_code: int
    throttle_time_ms: int
    topics: Sequence[OffsetDeleteResponseTopic]


class OffsetDeleteAnswerPartition(TypedDict, total=False):
    partition_index: int
    error_code: int


class OffsetDeleteAnswerTopic(TypedDict, total=False):
    name: str
    partitions: Array[OffsetDeleteAnswerPartition]


class OffsetDeleteAnswer(Protocol):
    def __call__(
        self,
        *,
        error_code: int = ...,
        throttle_time_ms: int = ...,
        topics: Array[OffsetDeleteAnswerTopic] = ...,
    ) -> None: ...


class OffsetDelete(
    ApiTypes[
        OffsetDeleteRequest,
        OffsetDeleteAnswer,
        OffsetDeleteResponse,
    ]
):
    pass
