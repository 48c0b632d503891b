"""Generated from `messages/JoinGroup.txt` by `make types`."""

from collections.abc import Sequence
from typing import Protocol, TypedDict

from cordwood.wire.api_types import ApiTypes, Array
from cordwood.wire.schema import Entity


class JoinGroupRequestProtocol(Entity):
    name: str
    metadata: bytes


class JoinGroupRequest(Entity):
    group_id: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    member_id: str
    group_instance_id: str | None
    protocol_type: str
    protocols: Sequence[JoinGroupRequestProtocol]
    reason: str | None


class JoinGroupResponseMember(Entity):
    member_id: str
    group_instance_id: str | None
    metadata: bytes


class JoinGroupResponse(Entity):
    throttle_time_ms: int
    error_code: int
    generation_id: int
    protocol_type: str | None
    protocol_name: str | None
    leader: str
    skip_assignment: bool
    member_id: str
    members: Sequence[JoinGroupResponseMember]


class JoinGroupAnswerMember(TypedDict, total=False):
    member_id: str
    group_instance_id: str | None
    metadata: bytes


class JoinGroupAnswer(Protocol):
    def __call__(
        self,
        *,
        throttle_time_ms: int = ...,
        error_code: int = ...,
        generation_id: int = ...,
        protocol_type: str | None = ...,
        protocol_name: str | None = ...,
        leader: str = ...,
        skip_assignment: bool = ...,
        member_id: str = ...,
        members: Array[JoinGroupAnswerMember] = ...,
    ) -> None: ...


class JoinGroup(
    ApiTypes[
        JoinGroupRequest,
        JoinGroupAnswer,
        JoinGroupResponse,
    ]
):
    pass
