"""Generated from `messages/AlterUserScramCredentials.txt` by `make types`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, TypedDict

from cordwood.wire.api_types import ApiTypes, Array
from cordwood.wire.encoding.schema import Entity


class AlterUserScramCredentials(
    ApiTypes[
        "AlterUserScramCredentials.Request",
        "AlterUserScramCredentials.Answer",
        "AlterUserScramCredentials.Response",
    ]
):
    class RequestDeletion(Entity):
        name: str
        mechanism: int

    class RequestUpsertion(Entity):
        name: str
        mechanism: int
        iterations: int
        salt: bytes
        salted_password: bytes

    class Request(Entity):
        deletions: Sequence[AlterUserScramCredentials.RequestDeletion]
        upsertions: Sequence[AlterUserScramCredentials.RequestUpsertion]

    class ResponseResult(Entity):
        user: str
        error_code: int
        error_message: str | None

    class Response(Entity):
        throttle_time_ms: int
        results: Sequence[AlterUserScramCredentials.ResponseResult]

    class AnswerResult(TypedDict, total=False):
        user: str
        error_code: int
        error_message: str | None

    class Answer(Protocol):
        def __call__(
            self,
            *,
            throttle_time_ms: int = ...,
            results: Array[AlterUserScramCredentials.AnswerResult] = ...,
        ) -> None: ...
