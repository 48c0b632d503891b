"""Generated from `messages/CreatePartitions.txt` by `make types`."""

from collections.abc import Sequence
from typing import Protocol, TypedDict

from cordwood.wire.api_types import ApiTypes, Array
from cordwood.wire.schema import Entity


class CreatePartitionsRequestAssignment(Entity):
    broker_ids: Sequence[int]


class CreatePartitionsRequestTopic(Entity):
    name: str
    count: int
    assignments: Sequence[CreatePartitionsRequestAssignment] | None


class CreatePartitionsRequest(Entity):
    topics: Sequence[CreatePartitionsRequestTopic]
    timeout_ms: int
    validate_only: bool


class CreatePartitionsResponseResult(Entity):
    name: str
    error_code: int
    error_message: str | None


class CreatePartitionsResponse(Entity):
    throttle_time_ms: int
    results: Sequence[CreatePartitionsResponseResult]


class CreatePartitionsAnswerResult(TypedDict, total=False):
    name: str
    error_code: int
    error_message: str | None


class CreatePartitionsAnswer(Protocol):
    def __call__(
        self,
        *,
        throttle_time_ms: int = ...,
        results: Array[CreatePartitionsAnswerResult] = ...,
    ) -> None: ...


class CreatePartitions(
    ApiTypes[
        CreatePartitionsRequest,
        CreatePartitionsAnswer,
        CreatePartitionsResponse,
    ]
):
    pass
