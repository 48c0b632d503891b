"""Generated from `messages/ShareFetch.txt` by `make types`."""

from collections.abc import Sequence
from typing import Protocol, TypedDict

from cordwood.model.identifiers import TopicId
from cordwood.wire.api_types import ApiTypes, Array
from cordwood.wire.schema import Entity


class ShareFetchRequestAcknowledgementBatch(Entity):
    first_offset: int
    last_offset: int
    acknowledge_types: Sequence[int]


class ShareFetchRequestPartition(Entity):
    partition_index: int
    acknowledgement_batches: Sequence[ShareFetchRequestAcknowledgementBatch]


class ShareFetchRequestTopic(Entity):
    topic_id: TopicId | None
    partitions: Sequence[ShareFetchRequestPartition]


class ShareFetchRequestForgottenTopicsData(Entity):
    topic_id: TopicId | None
    partitions: Sequence[int]


class ShareFetchRequest(Entity):
    group_id: str | None
    member_id: str | None
    share_session_epoch: int
    max_wait_ms: int
    min_bytes: int
    max_bytes: int
    max_records: int
    batch_size: int
    share_acquire_mode: int
    is_renew_ack: bool
    topics: Sequence[ShareFetchRequestTopic]
    forgotten_topics_data: Sequence[ShareFetchRequestForgottenTopicsData]


class ShareFetchResponseCurrentLeader(Entity):
    leader_id: int
    leader_epoch: int


class ShareFetchResponseAcquiredRecord(Entity):
    first_offset: int
    last_offset: int
    delivery_count: int


class ShareFetchResponsePartition(Entity):
    partition_index: int
    error_code: int
    error_message: str | None
    acknowledge_error_code: int
    acknowledge_error_message: str | None
    current_leader: ShareFetchResponseCurrentLeader
    records: bytes | None
    acquired_records: Sequence[ShareFetchResponseAcquiredRecord]


class ShareFetchResponseResponse(Entity):
    topic_id: TopicId | None
    partitions: Sequence[ShareFetchResponsePartition]


class ShareFetchResponseNodeEndpoint(Entity):
    node_id: int
    host: str
    port: int
    rack: str | None


class ShareFetchResponse(Entity):
    throttle_time_ms: int
    error_code: int
    error_message: str | None
    acquisition_lock_timeout_ms: int
    responses: Sequence[ShareFetchResponseResponse]
    node_endpoints: Sequence[ShareFetchResponseNodeEndpoint]


class ShareFetchAnswerCurrentLeader(TypedDict, total=False):
    leader_id: int
    leader_epoch: int


class ShareFetchAnswerAcquiredRecord(TypedDict, total=False):
    first_offset: int
    last_offset: int
    delivery_count: int


class ShareFetchAnswerPartition(TypedDict, total=False):
    partition_index: int
    error_code: int
    error_message: str | None
    acknowledge_error_code: int
    acknowledge_error_message: str | None
    current_leader: ShareFetchAnswerCurrentLeader
    records: bytes | None
    acquired_records: Array[ShareFetchAnswerAcquiredRecord]


class ShareFetchAnswerResponse(TypedDict, total=False):
    topic_id: TopicId | None
    partitions: Array[ShareFetchAnswerPartition]


class ShareFetchAnswerNodeEndpoint(TypedDict, total=False):
    node_id: int
    host: str
    port: int
    rack: str | None


class ShareFetchAnswer(Protocol):
    def __call__(
        self,
        *,
        throttle_time_ms: int = ...,
        error_code: int = ...,
        error_message: str | None = ...,
        acquisition_lock_timeout_ms: int = ...,
        responses: Array[ShareFetchAnswerResponse] = ...,
        node_endpoints: Array[ShareFetchAnswerNodeEndpoint] = ...,
    ) -> None: ...


class ShareFetch(
    ApiTypes[
        ShareFetchRequest,
        ShareFetchAnswer,
        ShareFetchResponse,
    ]
):
    pass
