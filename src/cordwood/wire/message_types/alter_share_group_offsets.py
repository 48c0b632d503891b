"""Generated from `messages/AlterShareGroupOffsets.txt` by `make types`."""

from collections.abc import Sequence
from typing import Protocol, TypedDict

from cordwood.model.identifiers import TopicId
from cordwood.wire.api_types import ApiTypes, Array
from cordwood.wire.schema import Entity


class AlterShareGroupOffsetsRequestPartition(Entity):
    partition_index: int
    start_offset: int


class AlterShareGroupOffsetsRequestTopic(Entity):
    topic_name: str
    partitions: Sequence[AlterShareGroupOffsetsRequestPartition]


class AlterShareGroupOffsetsRequest(Entity):
    group_id: str
    topics: Sequence[AlterShareGroupOffsetsRequestTopic]


class AlterShareGroupOffsetsResponsePartition(Entity):
    partition_index: int
    error_code: int
    error_message: str | None


class AlterShareGroupOffsetsResponseResponse(Entity):
    topic_name: str
    topic_id: TopicId | None
    partitions: Sequence[AlterShareGroupOffsetsResponsePartition]


class AlterShareGroupOffsetsResponse(Entity):
    throttle_time_ms: int
    error_code: int
    error_message: str | None
    responses: Sequence[AlterShareGroupOffsetsResponseResponse]


class AlterShareGroupOffsetsAnswerPartition(TypedDict, total=False):
    partition_index: int
    error_code: int
    error_message: str | None


class AlterShareGroupOffsetsAnswerResponse(TypedDict, total=False):
    topic_name: str
    topic_id: TopicId | None
    partitions: Array[AlterShareGroupOffsetsAnswerPartition]


class AlterShareGroupOffsetsAnswer(Protocol):
    def __call__(
        self,
        *,
        throttle_time_ms: int = ...,
        error_code: int = ...,
        error_message: str | None = ...,
        responses: Array[AlterShareGroupOffsetsAnswerResponse] = ...,
    ) -> None: ...


class AlterShareGroupOffsets(
    ApiTypes[
        AlterShareGroupOffsetsRequest,
        AlterShareGroupOffsetsAnswer,
        AlterShareGroupOffsetsResponse,
    ]
):
    pass
