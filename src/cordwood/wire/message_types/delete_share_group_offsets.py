"""Generated from `messages/DeleteShareGroupOffsets.txt` by `make types`."""

from collections.abc import Sequence
from typing import Protocol, TypedDict

from cordwood.model.identifiers import TopicId
from cordwood.wire.api_types import ApiTypes, Array
from cordwood.wire.schema import Entity


class DeleteShareGroupOffsetsRequestTopic(Entity):
    topic_name: str


class DeleteShareGroupOffsetsRequest(Entity):
    group_id: str
    topics: Sequence[DeleteShareGroupOffsetsRequestTopic]


class DeleteShareGroupOffsetsResponseResponse(Entity):
    topic_name: str
    topic_id: TopicId | None
    error_code: int
    error_message: str | None


class DeleteShareGroupOffsetsResponse(Entity):
    throttle_time_ms: int
    error_code: int
    error_message: str | None
    responses: Sequence[DeleteShareGroupOffsetsResponseResponse]


class DeleteShareGroupOffsetsAnswerResponse(TypedDict, total=False):
    topic_name: str
    topic_id: TopicId | None
    error_code: int
    error_message: str | None


class DeleteShareGroupOffsetsAnswer(Protocol):
    def __call__(
        self,
        *,
        throttle_time_ms: int = ...,
        error_code: int = ...,
        error_message: str | None = ...,
        responses: Array[DeleteShareGroupOffsetsAnswerResponse] = ...,
    ) -> None: ...


class DeleteShareGroupOffsets(
    ApiTypes[
        DeleteShareGroupOffsetsRequest,
        DeleteShareGroupOffsetsAnswer,
        DeleteShareGroupOffsetsResponse,
    ]
):
    pass
