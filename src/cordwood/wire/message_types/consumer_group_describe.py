"""Generated from `messages/ConsumerGroupDescribe.txt` by `make types`."""

from collections.abc import Sequence
from typing import Protocol, TypedDict

from cordwood.model.identifiers import TopicId
from cordwood.wire.api_types import ApiTypes, Array
from cordwood.wire.schema import Entity


class ConsumerGroupDescribeRequest(Entity):
    group_ids: Sequence[str]
    include_authorized_operations: bool


class ConsumerGroupDescribeResponseTopicPartition(Entity):
    topic_id: TopicId | None
    topic_name: str
    partitions: Sequence[int]


class ConsumerGroupDescribeResponseAssignment(Entity):
    topic_partitions: Sequence[ConsumerGroupDescribeResponseTopicPartition]


class ConsumerGroupDescribeResponseTargetAssignment(Entity):
    topic_partitions: Sequence[ConsumerGroupDescribeResponseTopicPartition]


class ConsumerGroupDescribeResponseMember(Entity):
    member_id: str
    instance_id: str | None
    rack_id: str | None
    member_epoch: int
    client_id: str
    client_host: str
    subscribed_topic_names: Sequence[str]
    subscribed_topic_regex: str | None
    assignment: ConsumerGroupDescribeResponseAssignment
    target_assignment: ConsumerGroupDescribeResponseTargetAssignment
    member_type: int


class ConsumerGroupDescribeResponseGroup(Entity):
    error_code: int
    error_message: str | None
    group_id: str
    group_state: str
    group_epoch: int
    assignment_epoch: int
    assignor_name: str
    members: Sequence[ConsumerGroupDescribeResponseMember]
    authorized_operations: int


class ConsumerGroupDescribeResponse(Entity):
    throttle_time_ms: int
    groups: Sequence[ConsumerGroupDescribeResponseGroup]


class ConsumerGroupDescribeAnswerTopicPartition(TypedDict, total=False):
    topic_id: TopicId | None
    topic_name: str
    partitions: Array[int]


class ConsumerGroupDescribeAnswerAssignment(TypedDict, total=False):
    topic_partitions: Array[ConsumerGroupDescribeAnswerTopicPartition]


class ConsumerGroupDescribeAnswerTargetAssignment(TypedDict, total=False):
    topic_partitions: Array[ConsumerGroupDescribeAnswerTopicPartition]


class ConsumerGroupDescribeAnswerMember(TypedDict, total=False):
    member_id: str
    instance_id: str | None
    rack_id: str | None
    member_epoch: int
    client_id: str
    client_host: str
    subscribed_topic_names: Array[str]
    subscribed_topic_regex: str | None
    assignment: ConsumerGroupDescribeAnswerAssignment
    target_assignment: ConsumerGroupDescribeAnswerTargetAssignment
    member_type: int


class ConsumerGroupDescribeAnswerGroup(TypedDict, total=False):
    error_code: int
    error_message: str | None
    group_id: str
    group_state: str
    group_epoch: int
    assignment_epoch: int
    assignor_name: str
    members: Array[ConsumerGroupDescribeAnswerMember]
    authorized_operations: int


class ConsumerGroupDescribeAnswer(Protocol):
    def __call__(
        self,
        *,
        throttle_time_ms: int = ...,
        groups: Array[ConsumerGroupDescribeAnswerGroup] = ...,
    ) -> None: ...


class ConsumerGroupDescribe(
    ApiTypes[
        ConsumerGroupDescribeRequest,
        ConsumerGroupDescribeAnswer,
        ConsumerGroupDescribeResponse,
    ]
):
    pass
