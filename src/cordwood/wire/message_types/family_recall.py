"""Generated from `messages/FamilyRecall.txt` by `make types`."""

from __future__ import annotations

from typing import Protocol

from cordwood.wire.api_types import ApiTypes
from cordwood.wire.encoding.schema import Entity


class FamilyRecall(
    ApiTypes[
        "FamilyRecall.Request",
        "FamilyRecall.Answer",
        "FamilyRecall.Response",
    ]
):
    class Request(Entity):
        family: str

    class Response(Entity):
        throttle_time_ms: int
        error_code: int
        error_message: str | None
        last_batch_id: int
        decided_ms: int
        rows: int
        plan_digest: bytes
        plan: bytes

    class Answer(Protocol):
        def __call__(
            self,
            *,
            throttle_time_ms: int = ...,
            error_code: int = ...,
            error_message: str | None = ...,
            last_batch_id: int = ...,
            decided_ms: int = ...,
            rows: int = ...,
            plan_digest: bytes = ...,
            plan: bytes = ...,
        ) -> None: ...
