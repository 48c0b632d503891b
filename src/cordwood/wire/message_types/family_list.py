"""Generated from `messages/FamilyList.txt` by `make types`."""

from collections.abc import Sequence
from typing import Protocol, TypedDict

from cordwood.wire.api_types import ApiTypes, Array
from cordwood.wire.schema import Entity


class FamilyListRequest(Entity):
    families: Sequence[str] | None


class FamilyListResponseFamily(Entity):
    name: str
    last_batch_id: int
    decided_ms: int
    forgotten: bool
    slots: int
    joined_slots: int
    open_slots: int
    completing_slots: int


class FamilyListResponse(Entity):
    throttle_time_ms: int
    error_code: int
    families: Sequence[FamilyListResponseFamily]


class FamilyListAnswerFamily(TypedDict, total=False):
    name: str
    last_batch_id: int
    decided_ms: int
    forgotten: bool
    slots: int
    joined_slots: int
    open_slots: int
    completing_slots: int


class FamilyListAnswer(Protocol):
    def __call__(
        self,
        *,
        throttle_time_ms: int = ...,
        error_code: int = ...,
        families: Array[FamilyListAnswerFamily] = ...,
    ) -> None: ...


class FamilyList(
    ApiTypes[
        FamilyListRequest,
        FamilyListAnswer,
        FamilyListResponse,
    ]
):
    pass
