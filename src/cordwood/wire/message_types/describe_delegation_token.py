"""Generated from `messages/DescribeDelegationToken.txt` by `make types`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, TypedDict

from cordwood.wire.api_types import ApiTypes, Array
from cordwood.wire.encoding.schema import Entity


class DescribeDelegationToken(
    ApiTypes[
        "DescribeDelegationToken.Request",
        "DescribeDelegationToken.Answer",
        "DescribeDelegationToken.Response",
    ]
):
    class RequestOwner(Entity):
        principal_type: str
        principal_name: str

    class Request(Entity):
        owners: Sequence[DescribeDelegationToken.RequestOwner] | None

    class ResponseRenewer(Entity):
        principal_type: str
        principal_name: str

    class ResponseToken(Entity):
        principal_type: str
        principal_name: str
        token_requester_principal_type: str
        token_requester_principal_name: str
        issue_timestamp: int
        expiry_timestamp: int
        max_timestamp: int
        token_id: str
        hmac: bytes
        renewers: Sequence[DescribeDelegationToken.ResponseRenewer]

    class Response(Entity):
        error_code: int
        tokens: Sequence[DescribeDelegationToken.ResponseToken]
        throttle_time_ms: int

    class AnswerRenewer(TypedDict, total=False):
        principal_type: str
        principal_name: str

    class AnswerToken(TypedDict, total=False):
        principal_type: str
        principal_name: str
        token_requester_principal_type: str
        token_requester_principal_name: str
        issue_timestamp: int
        expiry_timestamp: int
        max_timestamp: int
        token_id: str
        hmac: bytes
        renewers: Array[DescribeDelegationToken.AnswerRenewer]

    class Answer(Protocol):
        def __call__(
            self,
            *,
            error_code: int = ...,
            tokens: Array[DescribeDelegationToken.AnswerToken] = ...,
            throttle_time_ms: int = ...,
        ) -> None: ...
