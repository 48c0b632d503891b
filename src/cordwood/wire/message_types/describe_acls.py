"""Generated from `messages/DescribeAcls.txt` by `make types`."""

from collections.abc import Sequence
from typing import Protocol, TypedDict

from cordwood.wire.api_types import ApiTypes, Array
from cordwood.wire.schema import Entity


class DescribeAclsRequest(Entity):
    resource_type_filter: int
    resource_name_filter: str | None
    pattern_type_filter: int
    principal_filter: str | None
    host_filter: str | None
    operation: int
    permission_type: int


class DescribeAclsResponseAcl(Entity):
    principal: str
    host: str
    operation: int
    permission_type: int


class DescribeAclsResponseResource(Entity):
    resource_type: int
    resource_name: str
    pattern_type: int
    acls: Sequence[DescribeAclsResponseAcl]


class DescribeAclsResponse(Entity):
    throttle_time_ms: int
    error_code: int
    error_message: str | None
    resources: Sequence[DescribeAclsResponseResource]


class DescribeAclsAnswerAcl(TypedDict, total=False):
    principal: str
    host: str
    operation: int
    permission_type: int


class DescribeAclsAnswerResource(TypedDict, total=False):
    resource_type: int
    resource_name: str
    pattern_type: int
    acls: Array[DescribeAclsAnswerAcl]


class DescribeAclsAnswer(Protocol):
    def __call__(
        self,
        *,
        throttle_time_ms: int = ...,
        error_code: int = ...,
        error_message: str | None = ...,
        resources: Array[DescribeAclsAnswerResource] = ...,
    ) -> None: ...


class DescribeAcls(
    ApiTypes[
        DescribeAclsRequest,
        DescribeAclsAnswer,
        DescribeAclsResponse,
    ]
):
    pass
