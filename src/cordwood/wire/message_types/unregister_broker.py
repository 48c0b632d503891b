"""Generated from `messages/UnregisterBroker.txt` by `make types`."""

from typing import Protocol

from cordwood.wire.api_types import ApiTypes
from cordwood.wire.schema import Entity


class UnregisterBrokerRequest(Entity):
    broker_id: int


class UnregisterBrokerResponse(Entity):
    throttle_time_ms: int
    error_code: int
    error_message: str | None


class UnregisterBrokerAnswer(Protocol):
    def __call__(
        self,
        *,
        throttle_time_ms: int = ...,
        error_code: int = ...,
        error_message: str | None = ...,
    ) -> None: ...


class UnregisterBroker(
    ApiTypes[
        UnregisterBrokerRequest,
        UnregisterBrokerAnswer,
        UnregisterBrokerResponse,
    ]
):
    pass
