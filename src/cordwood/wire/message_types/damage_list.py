"""Generated from `messages/DamageList.txt` by `make types`."""

from collections.abc import Sequence
from typing import Protocol, TypedDict

from cordwood.wire.api_types import ApiTypes, Array
from cordwood.wire.schema import Entity


class DamageListRequest(Entity):
    topics: Sequence[str] | None


class DamageListResponseFinding(Entity):
    topic: str
    partition: int
    file: str
    position: int
    first_offset: int
    end_offset: int
    reason: str
    found_ms: int


class DamageListResponse(Entity):
    throttle_time_ms: int
    error_code: int
    findings: Sequence[DamageListResponseFinding]
    findings_not_kept: int
    pass_began_ms: int
    last_pass_ended_ms: int


class DamageListAnswerFinding(TypedDict, total=False):
    topic: str
    partition: int
    file: str
    position: int
    first_offset: int
    end_offset: int
    reason: str
    found_ms: int


class DamageListAnswer(Protocol):
    def __call__(
        self,
        *,
        throttle_time_ms: int = ...,
        error_code: int = ...,
        findings: Array[DamageListAnswerFinding] = ...,
        findings_not_kept: int = ...,
        pass_began_ms: int = ...,
        last_pass_ended_ms: int = ...,
    ) -> None: ...


class DamageList(
    ApiTypes[
        DamageListRequest,
        DamageListAnswer,
        DamageListResponse,
    ]
):
    pass
