"""Generated from `messages/PushTelemetry.txt` by `make types`."""

from typing import Protocol

from cordwood.model.identifiers import TopicId
from cordwood.wire.api_types import ApiTypes
from cordwood.wire.schema import Entity


class PushTelemetryRequest(Entity):
    client_instance_id: TopicId | None
    subscription_id: int
    terminating: bool
    compression_type: int
    metrics: bytes


class PushTelemetryResponse(Entity):
    throttle_time_ms: int
    error_code: int


class PushTelemetryAnswer(Protocol):
    def __call__(
        self,
        *,
        throttle_time_ms: int = ...,
        error_code: int = ...,
    ) -> None: ...


class PushTelemetry(
    ApiTypes[
        PushTelemetryRequest,
        PushTelemetryAnswer,
        PushTelemetryResponse,
    ]
):
    pass
