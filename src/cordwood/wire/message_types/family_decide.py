"""Generated from `messages/FamilyDecide.txt` by `make types`."""

from collections.abc import Sequence
from typing import Protocol

from cordwood.wire.api_types import ApiTypes
from cordwood.wire.schema import Entity


class FamilyDecideRequestWinner(Entity):
    transactional_id: str
    producer_id: int
    producer_epoch: int


class FamilyDecideRequest(Entity):
    family: str
    batch_id: int
    commit: bool
    winners: Sequence[FamilyDecideRequestWinner]
    forget: bool
    timeout_ms: int
    rows: int
    plan_digest: bytes
    plan: bytes


class FamilyDecideResponse(Entity):
    throttle_time_ms: int
    error_code: int
    error_message: str | None
    already_decided: bool
    last_batch_id: int


class FamilyDecideAnswer(Protocol):
    def __call__(
        self,
        *,
        throttle_time_ms: int = ...,
        error_code: int = ...,
        error_message: str | None = ...,
        already_decided: bool = ...,
        last_batch_id: int = ...,
    ) -> None: ...


class FamilyDecide(
    ApiTypes[
        FamilyDecideRequest,
        FamilyDecideAnswer,
        FamilyDecideResponse,
    ]
):
    pass
