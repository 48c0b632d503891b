"""Generated from `messages/OffsetFetch.txt` by `make types`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, TypedDict

from cordwood.model.identifiers import TopicId
from cordwood.wire.api_types import ApiTypes, Array
from cordwood.wire.encoding.schema import Entity


class OffsetFetch(
    ApiTypes[
        "OffsetFetch.Request",
        "OffsetFetch.Answer",
        "OffsetFetch.Response",
    ]
):
    class RequestTopic(Entity):
        name: str
        partition_indexes: Sequence[int]

    class RequestGroupTopic(Entity):
        name: str
        topic_id: TopicId | None
        partition_indexes: Sequence[int]

    class RequestGroup(Entity):
        group_id: str
        member_id: str | None
        member_epoch: int
        topics: Sequence[OffsetFetch.RequestGroupTopic] | None

    class Request(Entity):
        group_id: str
        topics: Sequence[OffsetFetch.RequestTopic] | None
        groups: Sequence[OffsetFetch.RequestGroup]
        require_stable: bool

    class ResponsePartition(Entity):
        partition_index: int
        committed_offset: int
        committed_leader_epoch: int
        metadata: str | None
        error_code: int

    class ResponseTopic(Entity):
        name: str
        partitions: Sequence[OffsetFetch.ResponsePartition]

    class ResponseGroupTopic(Entity):
        name: str
        topic_id: TopicId | None
        partitions: Sequence[OffsetFetch.ResponsePartition]

    class ResponseGroup(Entity):
        group_id: str
        topics: Sequence[OffsetFetch.ResponseGroupTopic]
        error_code: int

    class Response(Entity):
        throttle_time_ms: int
        topics: Sequence[OffsetFetch.ResponseTopic]
        error_code: int
        groups: Sequence[OffsetFetch.ResponseGroup]

    class AnswerPartition(TypedDict, total=False):
        partition_index: int
        committed_offset: int
        committed_leader_epoch: int
        metadata: str | None
        error_code: int

    class AnswerTopic(TypedDict, total=False):
        name: str
        partitions: Array[OffsetFetch.AnswerPartition]

    class AnswerGroupTopic(TypedDict, total=False):
        name: str
        topic_id: TopicId | None
        partitions: Array[OffsetFetch.AnswerPartition]

    class AnswerGroup(TypedDict, total=False):
        group_id: str
        topics: Array[OffsetFetch.AnswerGroupTopic]
        error_code: int

    class Answer(Protocol):
        def __call__(
            self,
            *,
            throttle_time_ms: int = ...,
            topics: Array[OffsetFetch.AnswerTopic] = ...,
            error_code: int = ...,
            groups: Array[OffsetFetch.AnswerGroup] = ...,
        ) -> None: ...
