"""Generated from `messages/DescribeShareGroupOffsets.txt` by `make types`."""

from collections.abc import Sequence
from typing import Protocol, TypedDict

from cordwood.model.identifiers import TopicId
from cordwood.wire.api_types import ApiTypes, Array
from cordwood.wire.schema import Entity


class DescribeShareGroupOffsetsRequestTopic(Entity):
    topic_name: str
    partitions: Sequence[int]


class DescribeShareGroupOffsetsRequestGroup(Entity):
    group_id: str
    topics: Sequence[DescribeShareGroupOffsetsRequestTopic] | None


class DescribeShareGroupOffsetsRequest(Entity):
    groups: Sequence[DescribeShareGroupOffsetsRequestGroup]


class DescribeShareGroupOffsetsResponsePartition(Entity):
    partition_index: int
    start_offset: int
    leader_epoch: int
    lag: int
    error_code: int
    error_message: str | None


class DescribeShareGroupOffsetsResponseTopic(Entity):
    topic_name: str
    topic_id: TopicId | None
    partitions: Sequence[DescribeShareGroupOffsetsResponsePartition]


class DescribeShareGroupOffsetsResponseGroup(Entity):
    group_id: str
    topics: Sequence[DescribeShareGroupOffsetsResponseTopic]
    error_code: int
    error_message: str | None


class DescribeShareGroupOffsetsResponse(Entity):
    throttle_time_ms: int
    groups: Sequence[DescribeShareGroupOffsetsResponseGroup]


class DescribeShareGroupOffsetsAnswerPartition(TypedDict, total=False):
    partition_index: int
    start_offset: int
    leader_epoch: int
    lag: int
    error_code: int
    error_message: str | None


class DescribeShareGroupOffsetsAnswerTopic(TypedDict, total=False):
    topic_name: str
    topic_id: TopicId | None
    partitions: Array[DescribeShareGroupOffsetsAnswerPartition]


class DescribeShareGroupOffsetsAnswerGroup(TypedDict, total=False):
    group_id: str
    topics: Array[DescribeShareGroupOffsetsAnswerTopic]
    error_code: int
    error_message: str | None


class DescribeShareGroupOffsetsAnswer(Protocol):
    def __call__(
        self,
        *,
        throttle_time_ms: int = ...,
        groups: Array[DescribeShareGroupOffsetsAnswerGroup] = ...,
    ) -> None: ...


class DescribeShareGroupOffsets(
    ApiTypes[
        DescribeShareGroupOffsetsRequest,
        DescribeShareGroupOffsetsAnswer,
        DescribeShareGroupOffsetsResponse,
    ]
):
    pass
