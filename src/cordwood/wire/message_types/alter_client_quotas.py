"""Generated from `messages/AlterClientQuotas.txt` by `make types`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, TypedDict

from cordwood.wire.api_types import ApiTypes, Array
from cordwood.wire.encoding.schema import Entity


class AlterClientQuotas(
    ApiTypes[
        "AlterClientQuotas.Request",
        "AlterClientQuotas.Answer",
        "AlterClientQuotas.Response",
    ]
):
    class RequestEntity(Entity):
        entity_type: str
        entity_name: str | None

    class RequestOp(Entity):
        key: str
        value: float
        remove: bool

    class RequestEntry(Entity):
        entity: Sequence[AlterClientQuotas.RequestEntity]
        ops: Sequence[AlterClientQuotas.RequestOp]

    class Request(Entity):
        entries: Sequence[AlterClientQuotas.RequestEntry]
        validate_only: bool

    class ResponseEntity(Entity):
        entity_type: str
        entity_name: str | None

    class ResponseEntry(Entity):
        error_code: int
        error_message: str | None
        entity: Sequence[AlterClientQuotas.ResponseEntity]

    class Response(Entity):
        throttle_time_ms: int
        entries: Sequence[AlterClientQuotas.ResponseEntry]

    class AnswerEntity(TypedDict, total=False):
        entity_type: str
        entity_name: str | None

    class AnswerEntry(TypedDict, total=False):
        error_code: int
        error_message: str | None
        entity: Array[AlterClientQuotas.AnswerEntity]

    class Answer(Protocol):
        def __call__(
            self,
            *,
            throttle_time_ms: int = ...,
            entries: Array[AlterClientQuotas.AnswerEntry] = ...,
        ) -> None: ...
