"""Generated from `messages/DamageList.txt` by `make types`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, TypedDict

from cordwood.wire.api_types import ApiTypes, Array
from cordwood.wire.encoding.schema import Entity


class DamageList(
    ApiTypes[
        "DamageList.Request",
        "DamageList.Answer",
        "DamageList.Response",
    ]
):
    class Request(Entity):
        topics: Sequence[str] | None

    class ResponseFinding(Entity):
        topic: str
        partition: int
        file: str
        position: int
        first_offset: int
        end_offset: int
        reason: str
        found_ms: int
        not_repaired: str

    class ResponseRepair(Entity):
        topic: str
        partition: int
        first_offset: int
        end_offset: int
        broker_ids: Sequence[int]
        repaired_ms: int

    class Response(Entity):
        throttle_time_ms: int
        error_code: int
        findings: Sequence[DamageList.ResponseFinding]
        findings_not_kept: int
        pass_began_ms: int
        last_pass_ended_ms: int
        repairs: Sequence[DamageList.ResponseRepair]

    class AnswerFinding(TypedDict, total=False):
        topic: str
        partition: int
        file: str
        position: int
        first_offset: int
        end_offset: int
        reason: str
        found_ms: int
        not_repaired: str

    class AnswerRepair(TypedDict, total=False):
        topic: str
        partition: int
        first_offset: int
        end_offset: int
        broker_ids: Array[int]
        repaired_ms: int

    class Answer(Protocol):
        def __call__(
            self,
            *,
            throttle_time_ms: int = ...,
            error_code: int = ...,
            findings: Array[DamageList.AnswerFinding] = ...,
            findings_not_kept: int = ...,
            pass_began_ms: int = ...,
            last_pass_ended_ms: int = ...,
            repairs: Array[DamageList.AnswerRepair] = ...,
        ) -> None: ...
