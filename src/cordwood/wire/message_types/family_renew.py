"""Generated from `messages/FamilyRenew.txt` by `make types`."""

from typing import Protocol

from cordwood.wire.api_types import ApiTypes
from cordwood.wire.schema import Entity


class FamilyRenewRequest(Entity):
    family: str
    batch_id: int


class FamilyRenewResponse(Entity):
    throttle_time_ms: int
    error_code: int
    error_message: str | None
    decided: bool
    last_batch_id: int


class FamilyRenewAnswer(Protocol):
    def __call__(
        self,
        *,
        throttle_time_ms: int = ...,
        error_code: int = ...,
        error_message: str | None = ...,
        decided: bool = ...,
        last_batch_id: int = ...,
    ) -> None: ...


class FamilyRenew(
    ApiTypes[
        FamilyRenewRequest,
        FamilyRenewAnswer,
        FamilyRenewResponse,
    ]
):
    pass
