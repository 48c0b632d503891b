"""Generated from `messages/FamilyRecall.txt` by `make types`."""

from typing import Protocol

from cordwood.wire.api_types import ApiTypes
from cordwood.wire.schema import Entity


class FamilyRecallRequest(Entity):
    family: str


class FamilyRecallResponse(Entity):
    throttle_time_ms: int
    error_code: int
    error_message: str | None
    last_batch_id: int
    decided_ms: int
    rows: int
    plan_digest: bytes
    plan: bytes


class FamilyRecallAnswer(Protocol):
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


class FamilyRecall(
    ApiTypes[
        FamilyRecallRequest,
        FamilyRecallAnswer,
        FamilyRecallResponse,
    ]
):
    pass
