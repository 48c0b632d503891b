"""Generated from `messages/DescribeClientQuotas.txt` by `make types`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, TypedDict

from cordwood.wire.api_types import ApiTypes, Array
from cordwood.wire.encoding.schema import Entity


class DescribeClientQuotas(
    ApiTypes[
        "DescribeClientQuotas.Request",
        "DescribeClientQuotas.Answer",
        "DescribeClientQuotas.Response",
    ]
):
    class RequestComponent(Entity):
        entity_type: str
        match_type: int
        match: str | None

    class Request(Entity):
        components: Sequence[DescribeClientQuotas.RequestComponent]
        strict: bool

    class ResponseEntity(Entity):
        entity_type: str
        entity_name: str | None

    class ResponseValue(Entity):
        key: str
        value: float

    class ResponseEntry(Entity):
        entity: Sequence[DescribeClientQuotas.ResponseEntity]
        values: Sequence[DescribeClientQuotas.ResponseValue]

    class Response(Entity):
        throttle_time_ms: int
        error_code: int
        error_message: str | None
        entries: Sequence[DescribeClientQuotas.ResponseEntry] | None

    class AnswerEntity(TypedDict, total=False):
        entity_type: str
        entity_name: str | None

    class AnswerValue(TypedDict, total=False):
        key: str
        value: float

    class AnswerEntry(TypedDict, total=False):
        entity: Array[DescribeClientQuotas.AnswerEntity]
        values: Array[DescribeClientQuotas.AnswerValue]

    class Answer(Protocol):
        def __call__(
            self,
            *,
            throttle_time_ms: int = ...,
            error_code: int = ...,
            error_message: str | None = ...,
            entries: Array[DescribeClientQuotas.AnswerEntry] | None = ...,
        ) -> None: ...
