"""Generated from `messages/OffsetCommit.txt` by `make types`."""

from collections.abc import Sequence
from typing import Protocol, TypedDict

from cordwood.model.identifiers import TopicId
from cordwood.wire.api_types import ApiTypes, Array
from cordwood.wire.schema import Entity


class OffsetCommitRequestPartition(Entity):
    partition_index: int
    committed_offset: int
    committed_leader_epoch: int
    committed_metadata: str | None


class OffsetCommitRequestTopic(Entity):
    name: str
    topic_id: TopicId | None
    partitions: Sequence[OffsetCommitRequestPartition]


class OffsetCommitRequest(Entity):
    group_id: str
    generation_id_or_member_epoch: int
    member_id: str
    group_instance_id: str | None
    retention_time_ms: int
    topics: Sequence[OffsetCommitRequestTopic]


class OffsetCommitResponsePartition(Entity):
    partition_index: int
    error_code: int


class OffsetCommitResponseTopic(Entity):
    name: str
    topic_id: TopicId | None
    partitions: Sequence[OffsetCommitResponsePartition]


class OffsetCommitResponse(Entity):
    throttle_time_ms: int
    topics: Sequence[OffsetCommitResponseTopic]


class OffsetCommitAnswerPartition(TypedDict, total=False):
    partition_index: int
    error_code: int


class OffsetCommitAnswerTopic(TypedDict, total=False):
    name: str
    topic_id: TopicId | None
    partitions: Array[OffsetCommitAnswerPartition]


class OffsetCommitAnswer(Protocol):
    def __call__(
        self,
        *,
        throttle_time_ms: int = ...,
        topics: Array[OffsetCommitAnswerTopic] = ...,
    ) -> None: ...


class OffsetCommit(
    ApiTypes[
        OffsetCommitRequest,
        OffsetCommitAnswer,
        OffsetCommitResponse,
    ]
):
    pass
