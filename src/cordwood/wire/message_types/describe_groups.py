"""Generated from `messages/DescribeGroups.txt` by `make types`."""

from collections.abc import Sequence
from typing import Protocol, TypedDict

from cordwood.wire.api_types import ApiTypes, Array
from cordwood.wire.schema import Entity


class DescribeGroupsRequest(Entity):
    groups: Sequence[str]
    include_authorized_operations: bool


class DescribeGroupsResponseMember(Entity):
    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    member_metadata: bytes
    member_assignment: bytes


class DescribeGroupsResponseGroup(Entity):
    error_code: int
    error_message: str | None
    group_id: str
    group_state: str
    protocol_type: str
    protocol_data: str
    members: Sequence[DescribeGroupsResponseMember]
    authorized_operations: int


class DescribeGroupsResponse(Entity):
    throttle_time_ms: int
    groups: Sequence[DescribeGroupsResponseGroup]


class DescribeGroupsAnswerMember(TypedDict, total=False):
    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    member_metadata: bytes
    member_assignment: bytes


class DescribeGroupsAnswerGroup(TypedDict, total=False):
    error_code: int
    error_message: str | None
    group_id: str
    group_state: str
    protocol_type: str
    protocol_data: str
    members: Array[DescribeGroupsAnswerMember]
    authorized_operations: int


class DescribeGroupsAnswer(Protocol):
    def __call__(
        self,
        *,
        throttle_time_ms: int = ...,
        groups: Array[DescribeGroupsAnswerGroup] = ...,
    ) -> None: ...


class DescribeGroups(
    ApiTypes[
        DescribeGroupsRequest,
        DescribeGroupsAnswer,
        DescribeGroupsResponse,
    ]
):
    pass
