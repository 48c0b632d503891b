"""Generated from `messages/ReadShareGroupState.txt` by `make types`."""

from collections.abc import Sequence
from typing import Protocol, TypedDict

from cordwood.model.identifiers import TopicId
from cordwood.wire.api_types import ApiTypes, Array
from cordwood.wire.schema import Entity


class ReadShareGroupStateRequestPartition(Entity):
    partition: int
    leader_epoch: int


class ReadShareGroupStateRequestTopic(Entity):
    topic_id: TopicId | None
    partitions: Sequence[ReadShareGroupStateRequestPartition]


class ReadShareGroupStateRequest(Entity):
    group_id: str
    topics: Sequence[ReadShareGroupStateRequestTopic]


class ReadShareGroupStateResponseStateBatch(Entity):
    first_offset: int
    last_offset: int
    delivery_state: int
    delivery_count: int


class ReadShareGroupStateResponsePartition(Entity):
    partition: int
    error_code: int
    error_message: str | None
    state_epoch: int
    start_offset: int
    state_batches: Sequence[ReadShareGroupStateResponseStateBatch]


class ReadShareGroupStateResponseResult(Entity):
    topic_id: TopicId | None
    partitions: Sequence[ReadShareGroupStateResponsePartition]


class ReadShareGroupStateResponse(Entity):
    results: Sequence[ReadShareGroupStateResponseResult]


class ReadShareGroupStateAnswerStateBatch(TypedDict, total=False):
    first_offset: int
    last_offset: int
    delivery_state: int
    delivery_count: int


class ReadShareGroupStateAnswerPartition(TypedDict, total=False):
    partition: int
    error_code: int
    error_message: str | None
    state_epoch: int
    start_offset: int
    state_batches: Array[ReadShareGroupStateAnswerStateBatch]


class ReadShareGroupStateAnswerResult(TypedDict, total=False):
    topic_id: TopicId | None
    partitions: Array[ReadShareGroupStateAnswerPartition]


class ReadShareGroupStateAnswer(Protocol):
    def __call__(
        self,
        *,
        results: Array[ReadShareGroupStateAnswerResult] = ...,
    ) -> None: ...


class ReadShareGroupState(
    ApiTypes[
        ReadShareGroupStateRequest,
        ReadShareGroupStateAnswer,
        ReadShareGroupStateResponse,
    ]
):
    pass
