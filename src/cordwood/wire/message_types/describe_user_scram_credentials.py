"""Generated from `messages/DescribeUserScramCredentials.txt` by `make types`."""

from collections.abc import Sequence
from typing import Protocol, TypedDict

from cordwood.wire.api_types import ApiTypes, Array
from cordwood.wire.schema import Entity


class DescribeUserScramCredentialsRequestUser(Entity):
    name: str


class DescribeUserScramCredentialsRequest(Entity):
    users: Sequence[DescribeUserScramCredentialsRequestUser] | None


class DescribeUserScramCredentialsResponseCredentialInfo(Entity):
    mechanism: int
    iterations: int


class DescribeUserScramCredentialsResponseResult(Entity):
    user: str
    error_code: int
    error_message: str | None
    credential_infos: Sequence[DescribeUserScramCredentialsResponseCredentialInfo]


class DescribeUserScramCredentialsResponse(Entity):
    throttle_time_ms: int
    error_code: int
    error_message: str | None
    results: Sequence[DescribeUserScramCredentialsResponseResult]


class DescribeUserScramCredentialsAnswerCredentialInfo(TypedDict, total=False):
    mechanism: int
    iterations: int


class DescribeUserScramCredentialsAnswerResult(TypedDict, total=False):
    user: str
    error_code: int
    error_message: str | None
    credential_infos: Array[DescribeUserScramCredentialsAnswerCredentialInfo]


class DescribeUserScramCredentialsAnswer(Protocol):
    def __call__(
        self,
        *,
        throttle_time_ms: int = ...,
        error_code: int = ...,
        error_message: str | None = ...,
        results: Array[DescribeUserScramCredentialsAnswerResult] = ...,
    ) -> None: ...


class DescribeUserScramCredentials(
    ApiTypes[
        DescribeUserScramCredentialsRequest,
        DescribeUserScramCredentialsAnswer,
        DescribeUserScramCredentialsResponse,
    ]
):
    pass
