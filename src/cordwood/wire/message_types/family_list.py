"""Generated from `messages/FamilyList.txt` by `make types`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, TypedDict

from cordwood.wire.api_types import ApiTypes, Array
from cordwood.wire.encoding.schema import Entity


class FamilyList(
    ApiTypes[
        "FamilyList.Request",
        "FamilyList.Answer",
        "FamilyList.Response",
    ]
):
    class Request(Entity):
        families: Sequence[str] | None

    class ResponseFamily(Entity):
        name: str
        last_batch_id: int
        decided_ms: int
        forgotten: bool
        slots: int
        joined_slots: int
        open_slots: int
        completing_slots: int

    class Response(Entity):
        throttle_time_ms: int
        error_code: int
        families: Sequence[FamilyList.ResponseFamily]

    class AnswerFamily(TypedDict, total=False):
        name: str
        last_batch_id: int
        decided_ms: int
        forgotten: bool
        slots: int
        joined_slots: int
        open_slots: int
        completing_slots: int

    class Answer(Protocol):
        def __call__(
            self,
            *,
            throttle_time_ms: int = ...,
            error_code: int = ...,
            families: Array[FamilyList.AnswerFamily] = ...,
        ) -> None: ...
