"""Generated from `messages/LeaveGroup.txt` by `make types`."""

from collections.abc import Sequence
from typing import Protocol, TypedDict

from cordwood.wire.api_types import ApiTypes, Array
from cordwood.wire.schema import Entity


class LeaveGroupRequestMember(Entity):
    member_id: str
    group_instance_id: str | None
    reason: str | None


class LeaveGroupRequest(Entity):
    group_id: str
    member_id: str
    members: Sequence[LeaveGroupRequestMember]


class LeaveGroupResponseMember(Entity):
    member_id: str
    group_instance_id: str | None
    error_code: int


class LeaveGroupResponse(Entity):
    throttle_time_ms: int
    error_code: int
    members: Sequence[LeaveGroupResponseMember]


class LeaveGroupAnswerMember(TypedDict, total=False):
    member_id: str
    group_instance_id: str | None
    error_code: int


class LeaveGroupAnswer(Protocol):
    def __call__(
        self,
        *,
        throttle_time_ms: int = ...,
        error_code: int = ...,
        members: Array[LeaveGroupAnswerMember] = ...,
    ) -> None: ...


class LeaveGroup(
    ApiTypes[
        LeaveGroupRequest,
        LeaveGroupAnswer,
        LeaveGroupResponse,
    ]
):
    pass
