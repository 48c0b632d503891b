"""Generated from `messages/DescribeShareGroupOffsets.txt` by `make types`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, TypedDict

from cordwood.model.identifiers import TopicId
from cordwood.wire.api_types import ApiTypes, Array
from cordwood.wire.encoding.schema import Entity


class DescribeShareGroupOffsets(
    ApiTypes[
        "DescribeShareGroupOffsets.Request",
        "DescribeShareGroupOffsets.Answer",
        "DescribeShareGroupOffsets.Response",
    ]
):
    class RequestTopic(Entity):
        topic_name: str
        partitions: Sequence[int]

    class RequestGroup(Entity):
        group_id: str
        topics: Sequence[DescribeShareGroupOffsets.RequestTopic] | None

    class Request(Entity):
        groups: Sequence[DescribeShareGroupOffsets.RequestGroup]

    class ResponsePartition(Entity):
        partition_index: int
        start_offset: int
        leader_epoch: int
        lag: int
        error_code: int
        error_message: str | None

    class ResponseTopic(Entity):
        topic_name: str
        topic_id: TopicId | None
        partitions: Sequence[DescribeShareGroupOffsets.ResponsePartition]

    class ResponseGroup(Entity):
        group_id: str
        topics: Sequence[DescribeShareGroupOffsets.ResponseTopic]
        error_code: int
        error_message: str | None

    class Response(Entity):
        throttle_time_ms: int
        groups: Sequence[DescribeShareGroupOffsets.ResponseGroup]

    class AnswerPartition(TypedDict, total=False):
        partition_index: int
        start_offset: int
        leader_epoch: int
        lag: int
        error_code: int
        error_message: str | None

    class AnswerTopic(TypedDict, total=False):
        topic_name: str
        topic_id: TopicId | None
        partitions: Array[DescribeShareGroupOffsets.AnswerPartition]

    class AnswerGroup(TypedDict, total=False):
        group_id: str
        topics: Array[DescribeShareGroupOffsets.AnswerTopic]
        error_code: int
        error_message: str | None

    class Answer(Protocol):
        def __call__(
            self,
            *,
            throttle_time_ms: int = ...,
            groups: Array[DescribeShareGroupOffsets.AnswerGroup] = ...,
        ) -> None: ...
