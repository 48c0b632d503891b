"""Generated from `messages/Heartbeat.txt` by `make types`."""

from __future__ import annotations

from typing import Protocol

from cordwood.wire.api_types import ApiTypes
from cordwood.wire.encoding.schema import Entity


class Heartbeat(
    ApiTypes[
        "Heartbeat.Request",
        "Heartbeat.Answer",
        "Heartbeat.Response",
    ]
):
    class Request(Entity):
        group_id: str
        generation_id: int
        member_id: str
        group_instance_id: str | None

    class Response(Entity):
        throttle_time_ms: int
        error_code: int

    class Answer(Protocol):
        def __call__(
            self,
            *,
            throttle_time_ms: int = ...,
            error_code: int = ...,
        ) -> None: ...
