"""Generated from `messages/ControllerRegistration.txt` by `make types`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from cordwood.model.identifiers import TopicId
from cordwood.wire.api_types import ApiTypes
from cordwood.wire.encoding.schema import Entity


class ControllerRegistration(
    ApiTypes[
        "ControllerRegistration.Request",
        "ControllerRegistration.Answer",
        "ControllerRegistration.Response",
    ]
):
    class RequestListener(Entity):
        name: str
        host: str
        port: int
        security_protocol: int

    class RequestFeature(Entity):
        name: str
        min_supported_version: int
        max_supported_version: int

    class Request(Entity):
        controller_id: int
        incarnation_id: TopicId | None
        zk_migration_ready: bool
        listeners: Sequence[ControllerRegistration.RequestListener]
        features: Sequence[ControllerRegistration.RequestFeature]

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
