"""Generated from `messages/Heartbeat.txt` by `make types`."""

from typing import Protocol

from cordwood.wire.api_types import ApiTypes
from cordwood.wire.schema import Entity


class HeartbeatRequest(Entity):
    group_id: str
    generation_id: int
    member_id: str
    group_instance_id: str | None


class HeartbeatResponse(Entity):
    throttle_time_ms: int
    error_code: int


class HeartbeatAnswer(Protocol):
    def __call__(
        self,
        *,
        throttle_time_ms: int = ...,
        error_code: int = ...,
    ) -> None: ...


class Heartbeat(
    ApiTypes[
        HeartbeatRequest,
        HeartbeatAnswer,
        HeartbeatResponse,
    ]
):
    pass
