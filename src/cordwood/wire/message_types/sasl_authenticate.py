"""Generated from `messages/SaslAuthenticate.txt` by `make types`."""

from typing import Protocol

from cordwood.wire.api_types import ApiTypes
from cordwood.wire.schema import Entity


class SaslAuthenticateRequest(Entity):
    auth_bytes: bytes


class SaslAuthenticateResponse(Entity):
    error_code: int
    error_message: str | None
    auth_bytes: bytes
    session_lifetime_ms: int


class SaslAuthenticateAnswer(Protocol):
    def __call__(
        self,
        *,
        error_code: int = ...,
        error_message: str | None = ...,
        auth_bytes: bytes = ...,
        session_lifetime_ms: int = ...,
    ) -> None: ...


class SaslAuthenticate(
    ApiTypes[
        SaslAuthenticateRequest,
        SaslAuthenticateAnswer,
        SaslAuthenticateResponse,
    ]
):
    pass
