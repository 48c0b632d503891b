"""Generated from `messages/JoinGroup.txt` by `make types`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, TypedDict

from cordwood.wire.api_types import ApiTypes, Array
from cordwood.wire.encoding.schema import Entity


class JoinGroup(
    ApiTypes[
        "JoinGroup.Request",
        "JoinGroup.Answer",
        "JoinGroup.Response",
    ]
):
    class RequestProtocol(Entity):
        name: str
        metadata: bytes

    class Request(Entity):
        group_id: str
        session_timeout_ms: int
        rebalance_timeout_ms: int
        member_id: str
        group_instance_id: str | None
        protocol_type: str
        protocols: Sequence[JoinGroup.RequestProtocol]
        reason: str | None

    class ResponseMember(Entity):
        member_id: str
        group_instance_id: str | None
        metadata: bytes

    class Response(Entity):
        throttle_time_ms: int
        error_code: int
        generation_id: int
        protocol_type: str | None
        protocol_name: str | None
        leader: str
        skip_assignment: bool
        member_id: str
        members: Sequence[JoinGroup.ResponseMember]

    class AnswerMember(TypedDict, total=False):
        member_id: str
        group_instance_id: str | None
        metadata: bytes

    class Answer(Protocol):
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
            members: Array[JoinGroup.AnswerMember] = ...,
        ) -> None: ...
