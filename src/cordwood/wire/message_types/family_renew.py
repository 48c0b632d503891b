"""Generated from `messages/FamilyRenew.txt` by `make types`."""

from __future__ import annotations

from typing import Protocol

from cordwood.wire.api_types import ApiTypes
from cordwood.wire.encoding.schema import Entity


class FamilyRenew(
    ApiTypes[
        "FamilyRenew.Request",
        "FamilyRenew.Answer",
        "FamilyRenew.Response",
    ]
):
    class Request(Entity):
        family: str
        batch_id: int

    class Response(Entity):
        throttle_time_ms: int
        error_code: int
        error_message: str | None
        decided: bool
        last_batch_id: int

    class Answer(Protocol):
        def __call__(
            self,
            *,
            throttle_time_ms: int = ...,
            error_code: int = ...,
            error_message: str | None = ...,
            decided: bool = ...,
            last_batch_id: int = ...,
        ) -> None: ...
