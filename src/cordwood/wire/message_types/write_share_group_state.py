"""Generated from `messages/WriteShareGroupState.txt` by `make types`."""

from collections.abc import Sequence
from typing import Protocol, TypedDict

from cordwood.model.identifiers import TopicId
from cordwood.wire.api_types import ApiTypes, Array
from cordwood.wire.schema import Entity


class WriteShareGroupStateRequestStateBatch(Entity):
    first_offset: int
    last_offset: int
    delivery_state: int
    delivery_count: int


class WriteShareGroupStateRequestPartition(Entity):
    partition: int
    state_epoch: int
    leader_epoch: int
    start_offset: int
    delivery_complete_count: int
    state_batches: Sequence[WriteShareGroupStateRequestStateBatch]


class WriteShareGroupStateRequestTopic(Entity):
    topic_id: TopicId | None
    partitions: Sequence[WriteShareGroupStateRequestPartition]


class WriteShareGroupStateRequest(Entity):
    group_id: str
    topics: Sequence[WriteShareGroupStateRequestTopic]


class WriteShareGroupStateResponsePartition(Entity):
    partition: int
    error_code: int
    error_message: str | None


class WriteShareGroupStateResponseResult(Entity):
    topic_id: TopicId | None
    partitions: Sequence[WriteShareGroupStateResponsePartition]


class WriteShareGroupStateResponse(Entity):
    results: Sequence[WriteShareGroupStateResponseResult]


class WriteShareGroupStateAnswerPartition(TypedDict, total=False):
    partition: int
    error_code: int
    error_message: str | None


class WriteShareGroupStateAnswerResult(TypedDict, total=False):
    topic_id: TopicId | None
    partitions: Array[WriteShareGroupStateAnswerPartition]


class WriteShareGroupStateAnswer(Protocol):
    def __call__(
        self,
        *,
        results: Array[WriteShareGroupStateAnswerResult] = ...,
    ) -> None: ...


class WriteShareGroupState(
    ApiTypes[
        WriteShareGroupStateRequest,
        WriteShareGroupStateAnswer,
        WriteShareGroupStateResponse,
    ]
):
    pass
