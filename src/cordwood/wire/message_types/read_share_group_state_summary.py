"""Generated from `messages/ReadShareGroupStateSummary.txt` by `make types`."""

from collections.abc import Sequence
from typing import Protocol, TypedDict

from cordwood.model.identifiers import TopicId
from cordwood.wire.api_types import ApiTypes, Array
from cordwood.wire.schema import Entity


class ReadShareGroupStateSummaryRequestPartition(Entity):
    partition: int
    leader_epoch: int


class ReadShareGroupStateSummaryRequestTopic(Entity):
    topic_id: TopicId | None
    partitions: Sequence[ReadShareGroupStateSummaryRequestPartition]


class ReadShareGroupStateSummaryRequest(Entity):
    group_id: str
    topics: Sequence[ReadShareGroupStateSummaryRequestTopic]


class ReadShareGroupStateSummaryResponsePartition(Entity):
    partition: int
    error_code: int
    error_message: str | None
    state_epoch: int
    leader_epoch: int
    start_offset: int
    delivery_complete_count: int


class ReadShareGroupStateSummaryResponseResult(Entity):
    topic_id: TopicId | None
    partitions: Sequence[ReadShareGroupStateSummaryResponsePartition]


class ReadShareGroupStateSummaryResponse(Entity):
    results: Sequence[ReadShareGroupStateSummaryResponseResult]


class ReadShareGroupStateSummaryAnswerPartition(TypedDict, total=False):
    partition: int
    error_code: int
    error_message: str | None
    state_epoch: int
    leader_epoch: int
    start_offset: int
    delivery_complete_count: int


class ReadShareGroupStateSummaryAnswerResult(TypedDict, total=False):
    topic_id: TopicId | None
    partitions: Array[ReadShareGroupStateSummaryAnswerPartition]


class ReadShareGroupStateSummaryAnswer(Protocol):
    def __call__(
        self,
        *,
        results: Array[ReadShareGroupStateSummaryAnswerResult] = ...,
    ) -> None: ...


class ReadShareGroupStateSummary(
    ApiTypes[
        ReadShareGroupStateSummaryRequest,
        ReadShareGroupStateSummaryAnswer,
        ReadShareGroupStateSummaryResponse,
    ]
):
    pass
