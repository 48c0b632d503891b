"""Generated from `messages/DeleteGroups.txt` by `make types`."""

from collections.abc import Sequence
from typing import Protocol, TypedDict

from cordwood.wire.api_types import ApiTypes, Array
from cordwood.wire.schema import Entity


class DeleteGroupsRequest(Entity):
    groups_names: Sequence[str]


class DeleteGroupsResponseResult(Entity):
    group_id: str
    error_code: int
    error_message: str | None


class DeleteGroupsResponse(Entity):
    throttle_time_ms: int
    results: Sequence[DeleteGroupsResponseResult]


class DeleteGroupsAnswerResult(TypedDict, total=False):
    group_id: str
    error_code: int
    error_message: str | None


class DeleteGroupsAnswer(Protocol):
    def __call__(
        self,
        *,
        throttle_time_ms: int = ...,
        results: Array[DeleteGroupsAnswerResult] = ...,
    ) -> None: ...


class DeleteGroups(
    ApiTypes[
        DeleteGroupsRequest,
        DeleteGroupsAnswer,
        DeleteGroupsResponse,
    ]
):
    pass
