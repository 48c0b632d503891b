"""Generated from `messages/Envelope.txt` by `make types`."""

from __future__ import annotations

from typing import Protocol

from cordwood.wire.api_types import ApiTypes
from cordwood.wire.encoding.schema import Entity


class Envelope(
    ApiTypes[
        "Envelope.Request",
        "Envelope.Answer",
        "Envelope.Response",
    ]
):
    class Request(Entity):
        request_data: bytes
        request_principal: bytes | None
        client_host_address: bytes

    class Response(Entity):
        response_data: bytes | None
        error_code: int

    class Answer(Protocol):
        def __call__(
            self,
            *,
            response_data: bytes | None = ...,
            error_code: int = ...,
        ) -> None: ...
