"""Generated from `messages/DeleteAcls.txt` by `make types`."""

from collections.abc import Sequence
from typing import Protocol, TypedDict

from cordwood.wire.api_types import ApiTypes, Array
from cordwood.wire.schema import Entity


class DeleteAclsRequestFilter(Entity):
    resource_type_filter: int
    resource_name_filter: str | None
    pattern_type_filter: int
    principal_filter: str | None
    host_filter: str | None
    operation: int
    permission_type: int


class DeleteAclsRequest(Entity):
    filters: Sequence[DeleteAclsRequestFilter]


class DeleteAclsResponseMatchingAcl(Entity):
    error_code: int
    error_message: str | None
    resource_type: int
    resource_name: str
    pattern_type: int
    principal: str
    host: str
    operation: int
    permission_type: int


class DeleteAclsResponseFilterResult(Entity):
    error_code: int
    error_message: str | None
    matching_acls: Sequence[DeleteAclsResponseMatchingAcl]


class DeleteAclsResponse(Entity):
    throttle_time_ms: int
    filter_results: Sequence[DeleteAclsResponseFilterResult]


class DeleteAclsAnswerMatchingAcl(TypedDict, total=False):
    error_code: int
    error_message: str | None
    resource_type: int
    resource_name: str
    pattern_type: int
    principal: str
    host: str
    operation: int
    permission_type: int


class DeleteAclsAnswerFilterResult(TypedDict, total=False):
    error_code: int
    error_message: str | None
    matching_acls: Array[DeleteAclsAnswerMatchingAcl]


class DeleteAclsAnswer(Protocol):
    def __call__(
        self,
        *,
        throttle_time_ms: int = ...,
        filter_results: Array[DeleteAclsAnswerFilterResult] = ...,
    ) -> None: ...


class DeleteAcls(
    ApiTypes[
        DeleteAclsRequest,
        DeleteAclsAnswer,
        DeleteAclsResponse,
    ]
):
    pass
