"""Generated from `messages/DescribeGroups.txt` by `make types`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, TypedDict

from cordwood.wire.api_types import ApiTypes, Array
from cordwood.wire.encoding.schema import Entity


class DescribeGroups(
    ApiTypes[
        "DescribeGroups.Request",
        "DescribeGroups.Answer",
        "DescribeGroups.Response",
    ]
):
    class Request(Entity):
        groups: Sequence[str]
        include_authorized_operations: bool

    class ResponseMember(Entity):
        member_id: str
        group_instance_id: str | None
        client_id: str
        client_host: str
        member_metadata: bytes
        member_assignment: bytes

    class ResponseGroup(Entity):
        error_code: int
        error_message: str | None
        group_id: str
        group_state: str
        protocol_type: str
        protocol_data: str
        members: Sequence[DescribeGroups.ResponseMember]
        authorized_operations: int

    class Response(Entity):
        throttle_time_ms: int
        groups: Sequence[DescribeGroups.ResponseGroup]

    class AnswerMember(TypedDict, total=False):
        member_id: str
        group_instance_id: str | None
        client_id: str
        client_host: str
        member_metadata: bytes
        member_assignment: bytes

    class AnswerGroup(TypedDict, total=False):
        error_code: int
        error_message: str | None
        group_id: str
        group_state: str
        protocol_type: str
        protocol_data: str
        members: Array[DescribeGroups.AnswerMember]
        authorized_operations: int

    class Answer(Protocol):
        def __call__(
            self,
            *,
            throttle_time_ms: int = ...,
            groups: Array[DescribeGroups.AnswerGroup] = ...,
        ) -> None: ...
