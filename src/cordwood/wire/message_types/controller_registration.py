"""Generated from `messages/ControllerRegistration.txt` by `make types`."""

from collections.abc import Sequence
from typing import Protocol

from cordwood.model.identifiers import TopicId
from cordwood.wire.api_types import ApiTypes
from cordwood.wire.schema import Entity


class ControllerRegistrationRequestListener(Entity):
    name: str
    host: str
    port: int
    security_protocol: int


class ControllerRegistrationRequestFeature(Entity):
    name: str
    min_supported_version: int
    max_supported_version: int


class ControllerRegistrationRequest(Entity):
    controller_id: int
    incarnation_id: TopicId | None
    zk_migration_ready: bool
    listeners: Sequence[ControllerRegistrationRequestListener]
    features: Sequence[ControllerRegistrationRequestFeature]


class ControllerRegistrationResponse(Entity):
    throttle_time_ms: int
    error_code: int
    error_message: str | None


class ControllerRegistrationAnswer(Protocol):
    def __call__(
        self,
        *,
        throttle_time_ms: int = ...,
        error_code: int = ...,
        error_message: str | None = ...,
    ) -> None: ...


class ControllerRegistration(
    ApiTypes[
        ControllerRegistrationRequest,
        ControllerRegistrationAnswer,
        ControllerRegistrationResponse,
    ]
):
    pass
