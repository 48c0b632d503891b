"""Generated from `messages/FamilyJoin.txt` by `make types`."""

from typing import Protocol

from cordwood.wire.api_types import ApiTypes
from cordwood.wire.schema import Entity


class FamilyJoinRequest(Entity):
    family: str
    batch_id: int
    timeout_ms: int


class FamilyJoinResponse(Entity):
    throttle_time_ms: int
    error_code: int
    error_message: str | None
    decided: bool
    last_batch_id: int
    transactional_id: str | None
    producer_id: int
    producer_epoch: int


class FamilyJoinAnswer(Protocol):
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


class FamilyJoin(
    ApiTypes[
        FamilyJoinRequest,
        FamilyJoinAnswer,
        FamilyJoinResponse,
    ]
):
    pass
