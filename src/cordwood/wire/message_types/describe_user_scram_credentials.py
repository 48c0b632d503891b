"""Generated from `messages/DescribeUserScramCredentials.txt` by `make types`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, TypedDict

from cordwood.wire.api_types import ApiTypes, Array
from cordwood.wire.encoding.schema import Entity


class DescribeUserScramCredentials(
    ApiTypes[
        "DescribeUserScramCredentials.Request",
        "DescribeUserScramCredentials.Answer",
        "DescribeUserScramCredentials.Response",
    ]
):
    class RequestUser(Entity):
        name: str

    class Request(Entity):
        users: Sequence[DescribeUserScramCredentials.RequestUser] | None

    class ResponseCredentialInfo(Entity):
        mechanism: int
        iterations: int

    class ResponseResult(Entity):
        user: str
        error_code: int
        error_message: str | None
        credential_infos: Sequence[DescribeUserScramCredentials.ResponseCredentialInfo]

    class Response(Entity):
        throttle_time_ms: int
        error_code: int
        error_message: str | None
        results: Sequence[DescribeUserScramCredentials.ResponseResult]

    class AnswerCredentialInfo(TypedDict, total=False):
        mechanism: int
        iterations: int

    class AnswerResult(TypedDict, total=False):
        user: str
        error_code: int
        error_message: str | None
        credential_infos: Array[DescribeUserScramCredentials.AnswerCredentialInfo]

    class Answer(Protocol):
        def __call__(
            self,
            *,
            throttle_time_ms: int = ...,
            error_code: int = ...,
            error_message: str | None = ...,
            results: Array[DescribeUserScramCredentials.AnswerResult] = ...,
        ) -> None: ...
