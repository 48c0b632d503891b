"""Generated from `messages/ListGroups.txt` by `make types`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, TypedDict

from cordwood.wire.api_types import ApiTypes, Array
from cordwood.wire.encoding.schema import Entity


class ListGroups(
    ApiTypes[
        "ListGroups.Request",
        "ListGroups.Answer",
        "ListGroups.Response",
    ]
):
    class Request(Entity):
        states_filter: Sequence[str]
        types_filter: Sequence[str]

    class ResponseGroup(Entity):
        group_id: str
        protocol_type: str
        group_state: str
        group_type: str

    class Response(Entity):
        throttle_time_ms: int
        error_code: int
        groups: Sequence[ListGroups.ResponseGroup]

    class AnswerGroup(TypedDict, total=False):
        group_id: str
        protocol_type: str
        group_state: str
        group_type: str

    class Answer(Protocol):
        def __call__(
            self,
            *,
            throttle_time_ms: int = ...,
            error_code: int = ...,
            groups: Array[ListGroups.AnswerGroup] = ...,
        ) -> None: ...
