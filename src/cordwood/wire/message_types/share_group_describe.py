"""Generated from `messages/ShareGroupDescribe.txt` by `make types`."""

from collections.abc import Sequence
from typing import Protocol, TypedDict

from cordwood.model.identifiers import TopicId
from cordwood.wire.api_types import ApiTypes, Array
from cordwood.wire.schema import Entity


class ShareGroupDescribeRequest(Entity):
    group_ids: Sequence[str]
    include_authorized_operations: bool


class ShareGroupDescribeResponseTopicPartition(Entity):
    topic_id: TopicId | None
    topic_name: str
    partitions: Sequence[int]


class ShareGroupDescribeResponseAssignment(Entity):
    topic_partitions: Sequence[ShareGroupDescribeResponseTopicPartition]


class ShareGroupDescribeResponseMember(Entity):
    member_id: str
    rack_id: str | None
    member_epoch: int
    client_id: str
    client_host: str
    subscribed_topic_names: Sequence[str]
    assignment: ShareGroupDescribeResponseAssignment


class ShareGroupDescribeResponseGroup(Entity):
    error_code: int
    error_message: str | None
    group_id: str
    group_state: str
    group_epoch: int
    assignment_epoch: int
    assignor_name: str
    members: Sequence[ShareGroupDescribeResponseMember]
    authorized_operations: int


class ShareGroupDescribeResponse(Entity):
    throttle_time_ms: int
    groups: Sequence[ShareGroupDescribeResponseGroup]


class ShareGroupDescribeAnswerTopicPartition(TypedDict, total=False):
    topic_id: TopicId | None
    topic_name: str
    partitions: Array[int]


class ShareGroupDescribeAnswerAssignment(TypedDict, total=False):
    topic_partitions: Array[ShareGroupDescribeAnswerTopicPartition]


class ShareGroupDescribeAnswerMember(TypedDict, total=False):
    member_id: str
    rack_id: str | None
    member_epoch: int
    client_id: str
    client_host: str
    subscribed_topic_names: Array[str]
    assignment: ShareGroupDescribeAnswerAssignment


class ShareGroupDescribeAnswerGroup(TypedDict, total=False):
    error_code: int
    error_message: str | None
    group_id: str
    group_state: str
    group_epoch: int
    assignment_epoch: int
    assignor_name: str
    members: Array[ShareGroupDescribeAnswerMember]
    authorized_operations: int


class ShareGroupDescribeAnswer(Protocol):
    def __call__(
        self,
        *,
        throttle_time_ms: int = ...,
        groups: Array[ShareGroupDescribeAnswerGroup] = ...,
    ) -> None: ...


class ShareGroupDescribe(
    ApiTypes[
        ShareGroupDescribeRequest,
        ShareGroupDescribeAnswer,
        ShareGroupDescribeResponse,
    ]
):
    pass
