"""Generated from `messages/UnregisterBroker.txt` by `make types`."""

from __future__ import annotations

from typing import Protocol

from cordwood.wire.api_types import ApiTypes
from cordwood.wire.encoding.schema import Entity


class UnregisterBroker(
    ApiTypes[
        "UnregisterBroker.Request",
        "UnregisterBroker.Answer",
        "UnregisterBroker.Response",
    ]
):
    class Request(Entity):
        broker_id: int

    class Response(Entity):
        throttle_time_ms: int
        error_code: int
        error_message: str | None

    class Answer(Protocol):
        def __call__(
            self,
            *,
            throttle_time_ms: int = ...,
            error_code: int = ...,
            error_message: str | None = ...,
        ) -> None: ...
