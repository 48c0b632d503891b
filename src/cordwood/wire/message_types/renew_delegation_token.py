"""Generated from `messages/RenewDelegationToken.txt` by `make types`."""

from __future__ import annotations

from typing import Protocol

from cordwood.wire.api_types import ApiTypes
from cordwood.wire.encoding.schema import Entity


class RenewDelegationToken(
    ApiTypes[
        "RenewDelegationToken.Request",
        "RenewDelegationToken.Answer",
        "RenewDelegationToken.Response",
    ]
):
    class Request(Entity):
        hmac: bytes
        renew_period_ms: int

    class Response(Entity):
        error_code: int
        expiry_timestamp_ms: int
        throttle_time_ms: int

    class Answer(Protocol):
        def __call__(
            self,
            *,
            error_code: int = ...,
            expiry_timestamp_ms: int = ...,
            throttle_time_ms: int = ...,
        ) -> None: ...
