"""Generated from `messages/AlterUserScramCredentials.txt` by `make types`."""

from collections.abc import Sequence
from typing import Protocol, TypedDict

from cordwood.wire.api_types import ApiTypes, Array
from cordwood.wire.schema import Entity


class AlterUserScramCredentialsRequestDeletion(Entity):
    name: str
    mechanism: int


class AlterUserScramCredentialsRequestUpsertion(Entity):
    name: str
    mechanism: int
    iterations: int
    salt: bytes
    salted_password: bytes


class AlterUserScramCredentialsRequest(Entity):
    deletions: Sequence[AlterUserScramCredentialsRequestDeletion]
    upsertions: Sequence[AlterUserScramCredentialsRequestUpsertion]


class AlterUserScramCredentialsResponseResult(Entity):
    user: str
    error_code: int
    error_message: str | None


class AlterUserScramCredentialsResponse(Entity):
    throttle_time_ms: int
    results: Sequence[AlterUserScramCredentialsResponseResult]


class AlterUserScramCredentialsAnswerResult(TypedDict, total=False):
    user: str
    error_code: int
    error_message: str | None


class AlterUserScramCredentialsAnswer(Protocol):
    def __call__(
        self,
        *,
        throttle_time_ms: int = ...,
        results: Array[AlterUserScramCredentialsAnswerResult] = ...,
    ) -> None: ...


class AlterUserScramCredentials(
    ApiTypes[
        AlterUserScramCredentialsRequest,
        AlterUserScramCredentialsAnswer,
        AlterUserScramCredentialsResponse,
    ]
):
    pass
