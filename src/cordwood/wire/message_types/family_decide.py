"""Generated from `messages/FamilyDecide.txt` by `make types`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from cordwood.wire.api_types import ApiTypes
from cordwood.wire.encoding.schema import Entity


class FamilyDecide(
    ApiTypes[
        "FamilyDecide.Request",
        "FamilyDecide.Answer",
        "FamilyDecide.Response",
    ]
):
    class RequestWinner(Entity):
        transactional_id: str
        producer_id: int
        producer_epoch: int

    class Request(Entity):
        family: str
        batch_id: int
        commit: bool
        winners: Sequence[FamilyDecide.RequestWinner]
        forget: bool
        timeout_ms: int
        rows: int
        plan_digest: bytes
        plan: bytes

    class Response(Entity):
        throttle_time_ms: int
        error_code: int
        error_message: str | None
        already_decided: bool
        last_batch_id: int

    class Answer(Protocol):
        def __call__(
            self,
            *,
            throttle_time_ms: int = ...,
            error_code: int = ...,
            error_message: str | None = ...,
            already_decided: bool = ...,
            last_batch_id: int = ...,
        ) -> None: ...
