"""Generated from `messages/DescribeDelegationToken.txt` by `make types`."""

from collections.abc import Sequence
from typing import Protocol, TypedDict

from cordwood.wire.api_types import ApiTypes, Array
from cordwood.wire.schema import Entity


class DescribeDelegationTokenRequestOwner(Entity):
    principal_type: str
    principal_name: str


class DescribeDelegationTokenRequest(Entity):
    owners: Sequence[DescribeDelegationTokenRequestOwner] | None


class DescribeDelegationTokenResponseRenewer(Entity):
    principal_type: str
    principal_name: str


class DescribeDelegationTokenResponseToken(Entity):
    principal_type: str
    principal_name: str
    token_requester_principal_type: str
    token_requester_principal_name: str
    issue_timestamp: int
    expiry_timestamp: int
    max_timestamp: int
    token_id: str
    hmac: bytes
    renewers: Sequence[DescribeDelegationTokenResponseRenewer]


class DescribeDelegationTokenResponse(Entity):
    error_code: int
    tokens: Sequence[DescribeDelegationTokenResponseToken]
    throttle_time_ms: int


class DescribeDelegationTokenAnswerRenewer(TypedDict, total=False):
    principal_type: str
    principal_name: str


class DescribeDelegationTokenAnswerToken(TypedDict, total=False):
    principal_type: str
    principal_name: str
    token_requester_principal_type: str
    token_requester_principal_name: str
    issue_timestamp: int
    expiry_timestamp: int
    max_timestamp: int
    token_id: str
    hmac: bytes
    renewers: Array[DescribeDelegationTokenAnswerRenewer]


class DescribeDelegationTokenAnswer(Protocol):
    def __call__(
        self,
        *,
        error_code: int = ...,
        tokens: Array[DescribeDelegationTokenAnswerToken] = ...,
        throttle_time_ms: int = ...,
    ) -> None: ...


class DescribeDelegationToken(
    ApiTypes[
        DescribeDelegationTokenRequest,
        DescribeDelegationTokenAnswer,
        DescribeDelegationTokenResponse,
    ]
):
    pass
