"""Generated from `messages/CreatePartitions.txt` by `make types`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, TypedDict

from cordwood.wire.api_types import ApiTypes, Array
from cordwood.wire.encoding.schema import Entity


class CreatePartitions(
    ApiTypes[
        "CreatePartitions.Request",
        "CreatePartitions.Answer",
        "CreatePartitions.Response",
    ]
):
    class RequestAssignment(Entity):
        broker_ids: Sequence[int]

    class RequestTopic(Entity):
        name: str
        count: int
        assignments: Sequence[CreatePartitions.RequestAssignment] | None

    class Request(Entity):
        topics: Sequence[CreatePartitions.RequestTopic]
        timeout_ms: int
        validate_only: bool

    class ResponseResult(Entity):
        name: str
        error_code: int
        error_message: str | None

    class Response(Entity):
        throttle_time_ms: int
        results: Sequence[CreatePartitions.ResponseResult]

    class AnswerResult(TypedDict, total=False):
        name: str
        error_code: int
        error_message: str | None

    class Answer(Protocol):
        def __call__(
            self,
            *,
            throttle_time_ms: int = ...,
            results: Array[CreatePartitions.AnswerResult] = ...,
        ) -> None: ...
