"""Generated from `messages/ExpireDelegationToken.txt` by `make types`."""

from typing import Protocol

from cordwood.wire.api_types import ApiTypes
from cordwood.wire.schema import Entity


class ExpireDelegationTokenRequest(Entity):
    hmac: bytes
    expiry_time_period_ms: int


class ExpireDelegationTokenResponse(Entity):
    error_code: int
    expiry_timestamp_ms: int
    throttle_time_ms: int


class ExpireDelegationTokenAnswer(Protocol):
    def __call__(
        self,
        *,
        error_code: int = ...,
        expiry_timestamp_ms: int = ...,
        throttle_time_ms: int = ...,
    ) -> None: ...


class ExpireDelegationToken(
    ApiTypes[
        ExpireDelegationTokenRequest,
        ExpireDelegationTokenAnswer,
        ExpireDelegationTokenResponse,
    ]
):
    pass
