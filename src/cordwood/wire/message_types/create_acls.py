"""Generated from `messages/CreateAcls.txt` by `make types`."""

from collections.abc import Sequence
from typing import Protocol, TypedDict

from cordwood.wire.api_types import ApiTypes, Array
from cordwood.wire.schema import Entity


class CreateAclsRequestCreation(Entity):
    resource_type: int
    resource_name: str
    resource_pattern_type: int
    principal: str
    host: str
    operation: int
    permission_type: int


class CreateAclsRequest(Entity):
    creations: Sequence[CreateAclsRequestCreation]


class CreateAclsResponseResult(Entity):
    error_code: int
    error_message: str | None


class CreateAclsResponse(Entity):
    throttle_time_ms: int
    results: Sequence[CreateAclsResponseResult]


class CreateAclsAnswerResult(TypedDict, total=False):
    error_code: int
    error_message: str | None


class CreateAclsAnswer(Protocol):
    def __call__(
        self,
        *,
        throttle_time_ms: int = ...,
        results: Array[CreateAclsAnswerResult] = ...,
    ) -> None: ...


class CreateAcls(
    ApiTypes[
        CreateAclsRequest,
        CreateAclsAnswer,
        CreateAclsResponse,
    ]
):
    pass
