"""Generated from `messages/OffsetFetch.txt` by `make types`."""

from collections.abc import Sequence
from typing import Protocol, TypedDict

from cordwood.model.identifiers import TopicId
from cordwood.wire.api_types import ApiTypes, Array
from cordwood.wire.schema import Entity


class OffsetFetchRequestTopic(Entity):
    name: str
    partition_indexes: Sequence[int]


class OffsetFetchRequestGroupTopic(Entity):
    name: str
    topic_id: TopicId | None
    partition_indexes: Sequence[int]


class OffsetFetchRequestGroup(Entity):
    group_id: str
    member_id: str | None
    member_epoch: int
    topics: Sequence[OffsetFetchRequestGroupTopic] | None


class OffsetFetchRequest(Entity):
    group_id: str
    topics: Sequence[OffsetFetchRequestTopic] | None
    groups: Sequence[OffsetFetchRequestGroup]
    require_stable: bool


class OffsetFetchResponsePartition(Entity):
    partition_index: int
    committed_offset: int
    committed_leader_epoch: int
    metadata: str | None
    error_code: int


class OffsetFetchResponseTopic(Entity):
    name: str
    partitions: Sequence[OffsetFetchResponsePartition]


class OffsetFetchResponseGroupTopic(Entity):
    name: str
    topic_id: TopicId | None
    partitions: Sequence[OffsetFetchResponsePartition]


class OffsetFetchResponseGroup(Entity):
    group_id: str
    topics: Sequence[OffsetFetchResponseGroupTopic]
    error_code: int


class OffsetFetchResponse(Entity):
    throttle_time_ms: int
    topics: Sequence[OffsetFetchResponseTopic]
    error_code: int
    groups: Sequence[OffsetFetchResponseGroup]


class OffsetFetchAnswerPartition(TypedDict, total=False):
    partition_index: int
    committed_offset: int
    committed_leader_epoch: int
    metadata: str | None
    error_code: int


class OffsetFetchAnswerTopic(TypedDict, total=False):
    name: str
    partitions: Array[OffsetFetchAnswerPartition]


class OffsetFetchAnswerGroupTopic(TypedDict, total=False):
    name: str
    topic_id: TopicId | None
    partitions: Array[OffsetFetchAnswerPartition]


class OffsetFetchAnswerGroup(TypedDict, total=False):
    group_id: str
    topics: Array[OffsetFetchAnswerGroupTopic]
    error_code: int


class OffsetFetchAnswer(Protocol):
    def __call__(
        self,
        *,
        throttle_time_ms: int = ...,
        topics: Array[OffsetFetchAnswerTopic] = ...,
        error_code: int = ...,
        groups: Array[OffsetFetchAnswerGroup] = ...,
    ) -> None: ...


class OffsetFetch(
    ApiTypes[
        OffsetFetchRequest,
        OffsetFetchAnswer,
        OffsetFetchResponse,
    ]
):
    pass
