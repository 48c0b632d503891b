"""Generated from `messages/DescribeAcls.txt` by `make types`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, TypedDict

from cordwood.wire.api_types import ApiTypes, Array
from cordwood.wire.encoding.schema import Entity


class DescribeAcls(
    ApiTypes[
        "DescribeAcls.Request",
        "DescribeAcls.Answer",
        "DescribeAcls.Response",
    ]
):
    class Request(Entity):
        resource_type_filter: int
        resource_name_filter: str | None
        pattern_type_filter: int
        principal_filter: str | None
        host_filter: str | None
        operation: int
        permission_type: int

    class ResponseAcl(Entity):
        principal: str
        host: str
        operation: int
        permission_type: int

    class ResponseResource(Entity):
        resource_type: int
        resource_name: str
        pattern_type: int
        acls: Sequence[DescribeAcls.ResponseAcl]

    class Response(Entity):
        throttle_time_ms: int
        error_code: int
        error_message: str | None
        resources: Sequence[DescribeAcls.ResponseResource]

    class AnswerAcl(TypedDict, total=False):
        principal: str
        host: str
        operation: int
        permission_type: int

    class AnswerResource(TypedDict, total=False):
        resource_type: int
        resource_name: str
        pattern_type: int
        acls: Array[DescribeAcls.AnswerAcl]

    class Answer(Protocol):
        def __call__(
            self,
            *,
            throttle_time_ms: int = ...,
            error_code: int = ...,
            error_message: str | None = ...,
            resources: Array[DescribeAcls.AnswerResource] = ...,
        ) -> None: ...
