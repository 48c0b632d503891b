"""Generated from `messages/FamilyJoin.txt` by `make types`."""

from __future__ import annotations

from typing import Protocol

from cordwood.wire.api_types import ApiTypes
from cordwood.wire.encoding.schema import Entity


class FamilyJoin(
    ApiTypes[
        "FamilyJoin.Request",
        "FamilyJoin.Answer",
        "FamilyJoin.Response",
    ]
):
    class Request(Entity):
        family: str
        batch_id: int
        timeout_ms: int

    class Response(Entity):
        throttle_time_ms: int
        error_code: int
        error_message: str | None
        decided: bool
        last_batch_id: int
        transactional_id: str | None
        producer_id: int
        producer_epoch: int

    class Answer(Protocol):
        def __call__(
            self,
            *,
            throttle_time_ms: int = ...,
            error_code: int = ...,
            error_message: str | None = ...,
            decided: bool = ...,
            last_batch_id: int = ...,
            transactional_id: str | None = ...,
            producer_id: int = ...,
            producer_epoch: int = ...,
        ) -> None: ...
