"""Generated from `messages/DeleteShareGroupState.txt` by `make types`."""

from collections.abc import Sequence
from typing import Protocol, TypedDict

from cordwood.model.identifiers import TopicId
from cordwood.wire.api_types import ApiTypes, Array
from cordwood.wire.schema import Entity


class DeleteShareGroupStateRequestPartition(Entity):
    partition: int


class DeleteShareGroupStateRequestTopic(Entity):
    topic_id: TopicId | None
    partitions: Sequence[DeleteShareGroupStateRequestPartition]


class DeleteShareGroupStateRequest(Entity):
    group_id: str
    topics: Sequence[DeleteShareGroupStateRequestTopic]


class DeleteShareGroupStateResponsePartition(Entity):
    partition: int
    error_code: int
    error_message: str | None


class DeleteShareGroupStateResponseResult(Entity):
    topic_id: TopicId | None
    partitions: Sequence[DeleteShareGroupStateResponsePartition]


class DeleteShareGroupStateResponse(Entity):
    results: Sequence[DeleteShareGroupStateResponseResult]


class DeleteShareGroupStateAnswerPartition(TypedDict, total=False):
    partition: int
    error_code: int
    error_message: str | None


class DeleteShareGroupStateAnswerResult(TypedDict, total=False):
    topic_id: TopicId | None
    partitions: Array[DeleteShareGroupStateAnswerPartition]


class DeleteShareGroupStateAnswer(Protocol):
    def __call__(
        self,
        *,
        results: Array[DeleteShareGroupStateAnswerResult] = ...,
    ) -> None: ...


class DeleteShareGroupState(
    ApiTypes[
        DeleteShareGroupStateRequest,
        DeleteShareGroupStateAnswer,
        DeleteShareGroupStateResponse,
    ]
):
    pass
