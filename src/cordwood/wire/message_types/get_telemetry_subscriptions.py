"""Generated from `messages/GetTelemetrySubscriptions.txt` by `make types`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from cordwood.model.identifiers import TopicId
from cordwood.wire.api_types import ApiTypes, Array
from cordwood.wire.encoding.schema import Entity


class GetTelemetrySubscriptions(
    ApiTypes[
        "GetTelemetrySubscriptions.Request",
        "GetTelemetrySubscriptions.Answer",
        "GetTelemetrySubscriptions.Response",
    ]
):
    class Request(Entity):
        client_instance_id: TopicId | None

    class Response(Entity):
        throttle_time_ms: int
        error_code: int
        client_instance_id: TopicId | None
        subscription_id: int
        accepted_compression_types: Sequence[int]
        push_interval_ms: int
        telemetry_max_bytes: int
        delta_temporality: bool
        requested_metrics: Sequence[str]

    class Answer(Protocol):
        def __call__(
            self,
            *,
            throttle_time_ms: int = ...,
            error_code: int = ...,
            client_instance_id: TopicId | None = ...,
            subscription_id: int = ...,
            accepted_compression_types: Array[int] = ...,
            push_interval_ms: int = ...,
            telemetry_max_bytes: int = ...,
            delta_temporality: bool = ...,
            requested_metrics: Array[str] = ...,
        ) -> None: ...
