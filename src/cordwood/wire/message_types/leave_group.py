"""Generated from `messages/LeaveGroup.txt` by `make types`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, TypedDict

from cordwood.wire.api_types import ApiTypes, Array
from cordwood.wire.encoding.schema import Entity


class LeaveGroup(
    ApiTypes[
        "LeaveGroup.Request",
        "LeaveGroup.Answer",
        "LeaveGroup.Response",
    ]
):
    class RequestMember(Entity):
        member_id: str
        group_instance_id: str | None
        reason: str | None

    class Request(Entity):
        group_id: str
        member_id: str
        members: Sequence[LeaveGroup.RequestMember]

    class ResponseMember(Entity):
        member_id: str
        group_instance_id: str | None
        error_code: int

    class Response(Entity):
        throttle_time_ms: int
        error_code: int
        members: Sequence[LeaveGroup.ResponseMember]

    class AnswerMember(TypedDict, total=False):
        member_id: str
        group_instance_id: str | None
        error_code: int

    class Answer(Protocol):
        def __call__(
            self,
            *,
            throttle_time_ms: int = ...,
            error_code: int = ...,
            members: Array[LeaveGroup.AnswerMember] = ...,
        ) -> None: ...
