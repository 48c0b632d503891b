"""Generated from `messages/TxnOffsetCommit.txt` by `make types`."""

from collections.abc import Sequence
from typing import Protocol, TypedDict

from cordwood.model.identifiers import TopicId
from cordwood.wire.api_types import ApiTypes, Array
from cordwood.wire.schema import Entity


class TxnOffsetCommitRequestPartition(Entity):
    partition_index: int
    committed_offset: int
    committed_leader_epoch: int
    committed_metadata: str | None


class TxnOffsetCommitRequestTopic(Entity):
    name: str
    topic_id: TopicId | None
    partitions: Sequence[TxnOffsetCommitRequestPartition]


class TxnOffsetCommitRequest(Entity):
    transactional_id: str
    group_id: str
    producer_id: int
    producer_epoch: int
    generation_id_or_member_epoch: int
    member_id: str
    group_instance_id: str | None
    topics: Sequence[TxnOffsetCommitRequestTopic]


class TxnOffsetCommitResponsePartition(Entity):
    partition_index: int
    error_code: int


class TxnOffsetCommitResponseTopic(Entity):
    name: str
    topic_id: TopicId | None
    partitions: Sequence[TxnOffsetCommitResponsePartition]


class TxnOffsetCommitResponse(Entity):
    throttle_time_ms: int
    topics: Sequence[TxnOffsetCommitResponseTopic]


class TxnOffsetCommitAnswerPartition(TypedDict, total=False):
    partition_index: int
    error_code: int


class TxnOffsetCommitAnswerTopic(TypedDict, total=False):
    name: str
    topic_id: TopicId | None
    partitions: Array[TxnOffsetCommitAnswerPartition]


class TxnOffsetCommitAnswer(Protocol):
    def __call__(
        self,
        *,
        throttle_time_ms: int = ...,
        topics: Array[TxnOffsetCommitAnswerTopic] = ...,
    ) -> None: ...


class TxnOffsetCommit(
    ApiTypes[
        TxnOffsetCommitRequest,
        TxnOffsetCommitAnswer,
        TxnOffsetCommitResponse,
    ]
):
    pass
