"""Generated from `messages/InitializeShareGroupState.txt` by `make types`."""

from collections.abc import Sequence
from typing import Protocol, TypedDict

from cordwood.model.identifiers import TopicId
from cordwood.wire.api_types import ApiTypes, Array
from cordwood.wire.schema import Entity


class InitializeShareGroupStateRequestPartition(Entity):
    partition: int
    state_epoch: int
    start_offset: int


class InitializeShareGroupStateRequestTopic(Entity):
    topic_id: TopicId | None
    partitions: Sequence[InitializeShareGroupStateRequestPartition]


class InitializeShareGroupStateRequest(Entity):
    group_id: str
    topics: Sequence[InitializeShareGroupStateRequestTopic]


class InitializeShareGroupStateResponsePartition(Entity):
    partition: int
    error_code: int
    error_message: str | None


class InitializeShareGroupStateResponseResult(Entity):
    topic_id: TopicId | None
    partitions: Sequence[InitializeShareGroupStateResponsePartition]


class InitializeShareGroupStateResponse(Entity):
    results: Sequence[InitializeShareGroupStateResponseResult]


class InitializeShareGroupStateAnswerPartition(TypedDict, total=False):
    partition: int
    error_code: int
    error_message: str | None


class InitializeShareGroupStateAnswerResult(TypedDict, total=False):
    topic_id: TopicId | None
    partitions: Array[InitializeShareGroupStateAnswerPartition]


class InitializeShareGroupStateAnswer(Protocol):
    def __call__(
        self,
        *,
        results: Array[InitializeShareGroupStateAnswerResult] = ...,
    ) -> None: ...


class InitializeShareGroupState(
    ApiTypes[
        InitializeShareGroupStateRequest,
        InitializeShareGroupStateAnswer,
        InitializeShareGroupStateResponse,
    ]
):
    pass
