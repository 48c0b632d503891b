"""Generated from `messages/SaslAuthenticate.txt` by `make types`."""

from __future__ import annotations

from typing import Protocol

from cordwood.wire.api_types import ApiTypes
from cordwood.wire.encoding.schema import Entity


class SaslAuthenticate(
    ApiTypes[
        "SaslAuthenticate.Request",
        "SaslAuthenticate.Answer",
        "SaslAuthenticate.Response",
    ]
):
    class Request(Entity):
        auth_bytes: bytes

    class Response(Entity):
        error_code: int
        error_message: str | None
        auth_bytes: bytes
        session_lifetime_ms: int

    class Answer(Protocol):
        def __call__(
            self,
            *,
            error_code: int = ...,
            error_message: str | None = ...,
            auth_bytes: bytes = ...,
            session_lifetime_ms: int = ...,
        ) -> None: ...
