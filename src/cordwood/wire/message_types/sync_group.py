"""Generated from `messages/SyncGroup.txt` by `make types`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from cordwood.wire.api_types import ApiTypes
from cordwood.wire.encoding.schema import Entity


class SyncGroup(
    ApiTypes[
        "SyncGroup.Request",
        "SyncGroup.Answer",
        "SyncGroup.Response",
    ]
):
    class RequestAssignment(Entity):
        member_id: str
        assignment: bytes

    class Request(Entity):
        group_id: str
        generation_id: int
        member_id: str
        group_instance_id: str | None
        protocol_type: str | None
        protocol_name: str | None
        assignments: Sequence[SyncGroup.RequestAssignment]

    class Response(Entity):
        throttle_time_ms: int
        error_code: int
        protocol_type: str | None
        protocol_name: str | None
        assignment: bytes

    class Answer(Protocol):
        def __call__(
            self,
            *,
            throttle_time_ms: int = ...,
            error_code: int = ...,
            protocol_type: str | None = ...,
            protocol_name: str | None = ...,
            assignment: bytes = ...,
        ) -> None: ...
