"""Generated from `messages/SaslHandshake.txt` by `make types`."""

from collections.abc import Sequence
from typing import Protocol

from cordwood.wire.api_types import ApiTypes, Array
from cordwood.wire.schema import Entity


class SaslHandshakeRequest(Entity):
    mechanism: str


class SaslHandshakeResponse(Entity):
    error_code: int
    mechanisms: Sequence[str]


class SaslHandshakeAnswer(Protocol):
    def __call__(
        self,
        *,
        error_code: int = ...,
        mechanisms: Array[str] = ...,
    ) -> None: ...


class SaslHandshake(
    ApiTypes[
        SaslHandshakeRequest,
        SaslHandshakeAnswer,
        SaslHandshakeResponse,
    ]
):
    pass
