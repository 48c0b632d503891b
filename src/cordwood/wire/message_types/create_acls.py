"""Generated from `messages/CreateAcls.txt` by `make types`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, TypedDict

from cordwood.wire.api_types import ApiTypes, Array
from cordwood.wire.encoding.schema import Entity


class CreateAcls(
    ApiTypes[
        "CreateAcls.Request",
        "CreateAcls.Answer",
        "CreateAcls.Response",
    ]
):
    class RequestCreation(Entity):
        resource_type: int
        resource_name: str
        resource_pattern_type: int
        principal: str
        host: str
        operation: int
        permission_type: int

    class Request(Entity):
        creations: Sequence[CreateAcls.RequestCreation]

    class ResponseResult(Entity):
        error_code: int
        error_message: str | None

    class Response(Entity):
        throttle_time_ms: int
        results: Sequence[CreateAcls.ResponseResult]

    class AnswerResult(TypedDict, total=False):
        error_code: int
        error_message: str | None

    class Answer(Protocol):
        def __call__(
            self,
            *,
            throttle_time_ms: int = ...,
            results: Array[CreateAcls.AnswerResult] = ...,
        ) -> None: ...
