"""Generated from `messages/DeleteAcls.txt` by `make types`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, TypedDict

from cordwood.wire.api_types import ApiTypes, Array
from cordwood.wire.encoding.schema import Entity


class DeleteAcls(
    ApiTypes[
        "DeleteAcls.Request",
        "DeleteAcls.Answer",
        "DeleteAcls.Response",
    ]
):
    class RequestFilter(Entity):
        resource_type_filter: int
        resource_name_filter: str | None
        pattern_type_filter: int
        principal_filter: str | None
        host_filter: str | None
        operation: int
        permission_type: int

    class Request(Entity):
        filters: Sequence[DeleteAcls.RequestFilter]

    class ResponseMatchingAcl(Entity):
        error_code: int
        error_message: str | None
        resource_type: int
        resource_name: str
        pattern_type: int
        principal: str
        host: str
        operation: int
        permission_type: int

    class ResponseFilterResult(Entity):
        error_code: int
        error_message: str | None
        matching_acls: Sequence[DeleteAcls.ResponseMatchingAcl]

    class Response(Entity):
        throttle_time_ms: int
        filter_results: Sequence[DeleteAcls.ResponseFilterResult]

    class AnswerMatchingAcl(TypedDict, total=False):
        error_code: int
        error_message: str | None
        resource_type: int
        resource_name: str
        pattern_type: int
        principal: str
        host: str
        operation: int
        permission_type: int

    class AnswerFilterResult(TypedDict, total=False):
        error_code: int
        error_message: str | None
        matching_acls: Array[DeleteAcls.AnswerMatchingAcl]

    class Answer(Protocol):
        def __call__(
            self,
            *,
            throttle_time_ms: int = ...,
            filter_results: Array[DeleteAcls.AnswerFilterResult] = ...,
        ) -> None: ...
