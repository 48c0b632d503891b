"""Generated from `messages/RenewDelegationToken.txt` by `make types`."""

from typing import Protocol

from cordwood.wire.api_types import ApiTypes
from cordwood.wire.schema import Entity


class RenewDelegationTokenRequest(Entity):
    hmac: bytes
    renew_period_ms: int


class RenewDelegationTokenResponse(Entity):
    error_code: int
    expiry_timestamp_ms: int
    throttle_time_ms: int


class RenewDelegationTokenAnswer(Protocol):
    def __call__(
        self,
        *,
        error_code: int = ...,
        expiry_timestamp_ms: int = ...,
        throttle_time_ms: int = ...,
    ) -> None: ...


class RenewDelegationToken(
    ApiTypes[
        RenewDelegationTokenRequest,
        RenewDelegationTokenAnswer,
        RenewDelegationTokenResponse,
    ]
):
    pass
