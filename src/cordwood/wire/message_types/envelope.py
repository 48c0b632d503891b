"""Generated from `messages/Envelope.txt` by `make types`."""

from typing import Protocol

from cordwood.wire.api_types import ApiTypes
from cordwood.wire.schema import Entity


class EnvelopeRequest(Entity):
    request_data: bytes
    request_principal: bytes | None
    client_host_address: bytes


class EnvelopeResponse(Entity):
    response_data: bytes | None
    error_code: int


class EnvelopeAnswer(Protocol):
    def __call__(
        self,
        *,
        response_data: bytes | None = ...,
        error_code: int = ...,
    ) -> None: ...


class Envelope(
    ApiTypes[
        EnvelopeRequest,
        EnvelopeAnswer,
        EnvelopeResponse,
    ]
):
    pass
