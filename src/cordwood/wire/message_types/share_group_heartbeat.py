"""Generated from `messages/ShareGroupHeartbeat.txt` by `make types`."""

from collections.abc import Sequence
from typing import Protocol, TypedDict

from cordwood.model.identifiers import TopicId
from cordwood.wire.api_types import ApiTypes, Array
from cordwood.wire.schema import Entity


class ShareGroupHeartbeatRequest(Entity):
    group_id: str
    member_id: str
    member_epoch: int
    rack_id: str | None
    subscribed_topic_names: Sequence[str] | None


class ShareGroupHeartbeatResponseTopicPartition(Entity):
    topic_id: TopicId | None
    partitions: Sequence[int]


class ShareGroupHeartbeatResponseAssignment(Entity):
    topic_partitions: Sequence[ShareGroupHeartbeatResponseTopicPartition]


class ShareGroupHeartbeatResponse(Entity):
    throttle_time_ms: int
    error_code: int
    error_message: str | None
    member_id: str | None
    member_epoch: int
    heartbeat_interval_ms: int
    assignment: ShareGroupHeartbeatResponseAssignment | None


class ShareGroupHeartbeatAnswerTopicPartition(TypedDict, total=False):
    topic_id: TopicId | None
    partitions: Array[int]


class ShareGroupHeartbeatAnswerAssignment(TypedDict, total=False):
    topic_partitions: Array[ShareGroupHeartbeatAnswerTopicPartition]


class ShareGroupHeartbeatAnswer(Protocol):
    def __call__(
        self,
        *,
        throttle_time_ms: int = ...,
        error_code: int = ...,
        error_message: str | None = ...,
        member_id: str | None = ...,
        member_epoch: int = ...,
        heartbeat_interval_ms: int = ...,
        assignment: ShareGroupHeartbeatAnswerAssignment | None = ...,
    ) -> None: ...


class ShareGroupHeartbeat(
    ApiTypes[
        ShareGroupHeartbeatRequest,
        ShareGroupHeartbeatAnswer,
        ShareGroupHeartbeatResponse,
    ]
):
    pass
