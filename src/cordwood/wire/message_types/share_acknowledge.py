"""Generated from `messages/ShareAcknowledge.txt` by `make types`."""

from collections.abc import Sequence
from typing import Protocol, TypedDict

from cordwood.model.identifiers import TopicId
from cordwood.wire.api_types import ApiTypes, Array
from cordwood.wire.schema import Entity


class ShareAcknowledgeRequestAcknowledgementBatch(Entity):
    first_offset: int
    last_offset: int
    acknowledge_types: Sequence[int]


class ShareAcknowledgeRequestPartition(Entity):
    partition_index: int
    acknowledgement_batches: Sequence[ShareAcknowledgeRequestAcknowledgementBatch]


class ShareAcknowledgeRequestTopic(Entity):
    topic_id: TopicId | None
    partitions: Sequence[ShareAcknowledgeRequestPartition]


class ShareAcknowledgeRequest(Entity):
    group_id: str | None
    member_id: str | None
    share_session_epoch: int
    is_renew_ack: bool
    topics: Sequence[ShareAcknowledgeRequestTopic]


class ShareAcknowledgeResponseCurrentLeader(Entity):
    leader_id: int
    leader_epoch: int


class ShareAcknowledgeResponsePartition(Entity):
    partition_index: int
    error_code: int
    error_message: str | None
    current_leader: ShareAcknowledgeResponseCurrentLeader


class ShareAcknowledgeResponseResponse(Entity):
    topic_id: TopicId | None
    partitions: Sequence[ShareAcknowledgeResponsePartition]


class ShareAcknowledgeResponseNodeEndpoint(Entity):
    node_id: int
    host: str
    port: int
    rack: str | None


class ShareAcknowledgeResponse(Entity):
    throttle_time_ms: int
    error_code: int
    error_message: str | None
    acquisition_lock_timeout_ms: int
    responses: Sequence[ShareAcknowledgeResponseResponse]
    node_endpoints: Sequence[ShareAcknowledgeResponseNodeEndpoint]


class ShareAcknowledgeAnswerCurrentLeader(TypedDict, total=False):
    leader_id: int
    leader_epoch: int


class ShareAcknowledgeAnswerPartition(TypedDict, total=False):
    partition_index: int
    error_code: int
    error_message: str | None
    current_leader: ShareAcknowledgeAnswerCurrentLeader


class ShareAcknowledgeAnswerResponse(TypedDict, total=False):
    topic_id: TopicId | None
    partitions: Array[ShareAcknowledgeAnswerPartition]


class ShareAcknowledgeAnswerNodeEndpoint(TypedDict, total=False):
    node_id: int
    host: str
    port: int
    rack: str | None


class ShareAcknowledgeAnswer(Protocol):
    def __call__(
        self,
        *,
        throttle_time_ms: int = ...,
        error_code: int = ...,
        error_message: str | None = ...,
        acquisition_lock_timeout_ms: int = ...,
        responses: Array[ShareAcknowledgeAnswerResponse] = ...,
        node_endpoints: Array[ShareAcknowledgeAnswerNodeEndpoint] = ...,
    ) -> None: ...


class ShareAcknowledge(
    ApiTypes[
        ShareAcknowledgeRequest,
        ShareAcknowledgeAnswer,
        ShareAcknowledgeResponse,
    ]
):
    pass
