"""Generated from `messages/SaslHandshake.txt` by `make types`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from cordwood.wire.api_types import ApiTypes, Array
from cordwood.wire.encoding.schema import Entity


class SaslHandshake(
    ApiTypes[
        "SaslHandshake.Request",
        "SaslHandshake.Answer",
        "SaslHandshake.Response",
    ]
):
    class Request(Entity):
        mechanism: str

    class Response(Entity):
        error_code: int
        mechanisms: Sequence[str]

    class Answer(Protocol):
        def __call__(
            self,
            *,
            error_code: int = ...,
            mechanisms: Array[str] = ...,
        ) -> None: ...
