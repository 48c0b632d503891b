"""Generated from `messages/Fetch.txt` by `make types`."""

from collections.abc import Sequence
from typing import Protocol, TypedDict

from cordwood.model.identifiers import TopicId
from cordwood.wire.api_types import ApiTypes, Array
from cordwood.wire.schema import Entity


class FetchRequestReplicaState(Entity):
    replica_id: int
    replica_epoch: int


class FetchRequestPartition(Entity):
    partition: int
    current_leader_epoch: int
    fetch_offset: int
    last_fetched_epoch: int
    log_start_offset: int
    partition_max_bytes: int
    replica_directory_id: TopicId | None
    high_watermark: int


class FetchRequestTopic(Entity):
    topic: str
    topic_id: TopicId | None
    partitions: Sequence[FetchRequestPartition]


class FetchRequestForgottenTopicsData(Entity):
    topic: str
    topic_id: TopicId | None
    partitions: Sequence[int]


class FetchRequest(Entity):
    cluster_id: str | None
    replica_id: int
    replica_state: FetchRequestReplicaState
    max_wait_ms: int
    min_bytes: int
    max_bytes: int
    isolation_level: int
    session_id: int
    session_epoch: int
    topics: Sequence[FetchRequestTopic]
    forgotten_topics_data: Sequence[FetchRequestForgottenTopicsData]
    rack_id: str


class FetchResponseDivergingEpoch(Entity):
    epoch: int
    end_offset: int


class FetchResponseCurrentLeader(Entity):
    leader_id: int
    leader_epoch: int


class FetchResponseSnapshotId(Entity):
    end_offset: int
    epoch: int


class FetchResponseAbortedTransaction(Entity):
    producer_id: int
    first_offset: int


class FetchResponsePartition(Entity):
    partition_index: int
    error_code: int
    high_watermark: int
    last_stable_offset: int
    log_start_offset: int
    diverging_epoch: FetchResponseDivergingEpoch
    current_leader: FetchResponseCurrentLeader
    snapshot_id: FetchResponseSnapshotId
    aborted_transactions: Sequence[FetchResponseAbortedTransaction] | None
    preferred_read_replica: int
    records: bytes | None


class FetchResponseResponse(Entity):
    topic: str
    topic_id: TopicId | None
    partitions: Sequence[FetchResponsePartition]


class FetchResponseNodeEndpoint(Entity):
    node_id: int
    host: str
    port: int
    rack: str | None


class FetchResponse(Entity):
    throttle_time_ms: int
    error_code: int
    session_id: int
    responses: Sequence[FetchResponseResponse]
    node_endpoints: Sequence[FetchResponseNodeEndpoint]


class FetchAnswerDivergingEpoch(TypedDict, total=False):
    epoch: int
    end_offset: int


class FetchAnswerCurrentLeader(TypedDict, total=False):
    leader_id: int
    leader_epoch: int


class FetchAnswerSnapshotId(TypedDict, total=False):
    end_offset: int
    epoch: int


class FetchAnswerAbortedTransaction(TypedDict, total=False):
    producer_id: int
    first_offset: int


class FetchAnswerPartition(TypedDict, total=False):
    partition_index: int
    error_code: int
    high_watermark: int
    last_stable_offset: int
    log_start_offset: int
    diverging_epoch: FetchAnswerDivergingEpoch
    current_leader: FetchAnswerCurrentLeader
    snapshot_id: FetchAnswerSnapshotId
    aborted_transactions: Array[FetchAnswerAbortedTransaction] | None
    preferred_read_replica: int
    records: bytes | None


class FetchAnswerResponse(TypedDict, total=False):
    topic: str
    topic_id: TopicId | None
    partitions: Array[FetchAnswerPartition]


class FetchAnswerNodeEndpoint(TypedDict, total=False):
    node_id: int
    host: str
    port: int
    rack: str | None


class FetchAnswer(Protocol):
    def __call__(
        self,
        *,
        throttle_time_ms: int = ...,
        error_code: int = ...,
        session_id: int = ...,
        responses: Array[FetchAnswerResponse] = ...,
        node_endpoints: Array[FetchAnswerNodeEndpoint] = ...,
    ) -> None: ...


class Fetch(
    ApiTypes[
        FetchRequest,
        FetchAnswer,
        FetchResponse,
    ]
):
    pass
