"""Generated from `messages/ShareGroupDescribe.txt` by `make types`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, TypedDict

from cordwood.model.identifiers import TopicId
from cordwood.wire.api_types import ApiTypes, Array
from cordwood.wire.encoding.schema import Entity


class ShareGroupDescribe(
    ApiTypes[
        "ShareGroupDescribe.Request",
        "ShareGroupDescribe.Answer",
        "ShareGroupDescribe.Response",
    ]
):
    class Request(Entity):
        group_ids: Sequence[str]
        include_authorized_operations: bool

    class ResponseTopicPartition(Entity):
        topic_id: TopicId | None
        topic_name: str
        partitions: Sequence[int]

    class ResponseAssignment(Entity):
        topic_partitions: Sequence[ShareGroupDescribe.ResponseTopicPartition]

    class ResponseMember(Entity):
        member_id: str
        rack_id: str | None
        member_epoch: int
        client_id: str
        client_host: str
        subscribed_topic_names: Sequence[str]
        assignment: ShareGroupDescribe.ResponseAssignment

    class ResponseGroup(Entity):
        error_code: int
        error_message: str | None
        group_id: str
        group_state: str
        group_epoch: int
        assignment_epoch: int
        assignor_name: str
        members: Sequence[ShareGroupDescribe.ResponseMember]
        authorized_operations: int

    class Response(Entity):
        throttle_time_ms: int
        groups: Sequence[ShareGroupDescribe.ResponseGroup]

    class AnswerTopicPartition(TypedDict, total=False):
        topic_id: TopicId | None
        topic_name: str
        partitions: Array[int]

    class AnswerAssignment(TypedDict, total=False):
        topic_partitions: Array[ShareGroupDescribe.AnswerTopicPartition]

    class AnswerMember(TypedDict, total=False):
        member_id: str
        rack_id: str | None
        member_epoch: int
        client_id: str
        client_host: str
        subscribed_topic_names: Array[str]
        assignment: ShareGroupDescribe.AnswerAssignment

    class AnswerGroup(TypedDict, total=False):
        error_code: int
        error_message: str | None
        group_id: str
        group_state: str
        group_epoch: int
        assignment_epoch: int
        assignor_name: str
        members: Array[ShareGroupDescribe.AnswerMember]
        authorized_operations: int

    class Answer(Protocol):
        def __call__(
            self,
            *,
            throttle_time_ms: int = ...,
            groups: Array[ShareGroupDescribe.AnswerGroup] = ...,
        ) -> None: ...
