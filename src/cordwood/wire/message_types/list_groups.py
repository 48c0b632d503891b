"""Generated from `messages/ListGroups.txt` by `make types`."""

from collections.abc import Sequence
from typing import Protocol, TypedDict

from cordwood.wire.api_types import ApiTypes, Array
from cordwood.wire.schema import Entity


class ListGroupsRequest(Entity):
    states_filter: Sequence[str]
    types_filter: Sequence[str]


class ListGroupsResponseGroup(Entity):
    group_id: str
    protocol_type: str
    group_state: str
    group_type: str


class ListGroupsResponse(Entity):
    throttle_time_ms: int
    error_code: int
    groups: Sequence[ListGroupsResponseGroup]


class ListGroupsAnswerGroup(TypedDict, total=False):
    group_id: str
    protocol_type: str
    group_state: str
    group_type: str


class ListGroupsAnswer(Protocol):
    def __call__(
        self,
        *,
        throttle_time_ms: int = ...,
        error_code: int = ...,
        groups: Array[ListGroupsAnswerGroup] = ...,
    ) -> None: ...


class ListGroups(
    ApiTypes[
        ListGroupsRequest,
        ListGroupsAnswer,
        ListGroupsResponse,
    ]
):
    pass
