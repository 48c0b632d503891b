"""Generated from `messages/DeleteGroups.txt` by `make types`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, TypedDict

from cordwood.wire.api_types import ApiTypes, Array
from cordwood.wire.encoding.schema import Entity


class DeleteGroups(
    ApiTypes[
        "DeleteGroups.Request",
        "DeleteGroups.Answer",
        "DeleteGroups.Response",
    ]
):
    class Request(Entity):
        groups_names: Sequence[str]

    class ResponseResult(Entity):
        group_id: str
        error_code: int
        error_message: str | None

    class Response(Entity):
        throttle_time_ms: int
        results: Sequence[DeleteGroups.ResponseResult]

    class AnswerResult(TypedDict, total=False):
        group_id: str
        error_code: int
        error_message: str | None

    class Answer(Protocol):
        def __call__(
            self,
            *,
            throttle_time_ms: int = ...,
            results: Array[DeleteGroups.AnswerResult] = ...,
        ) -> None: ...
