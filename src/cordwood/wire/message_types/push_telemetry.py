"""Generated from `messages/PushTelemetry.txt` by `make types`."""

from __future__ import annotations

from typing import Protocol

from cordwood.model.identifiers import TopicId
from cordwood.wire.api_types import ApiTypes
from cordwood.wire.encoding.schema import Entity


class PushTelemetry(
    ApiTypes[
        "PushTelemetry.Request",
        "PushTelemetry.Answer",
        "PushTelemetry.Response",
    ]
):
    class Request(Entity):
        client_instance_id: TopicId | None
        subscription_id: int
        terminating: bool
        compression_type: int
        metrics: bytes

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
