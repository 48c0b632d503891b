"""Generated from `messages/Fetch.txt` by `make types`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, TypedDict

from cordwood.model.identifiers import TopicId
from cordwood.wire.api_types import ApiTypes, Array
from cordwood.wire.encoding.schema import Entity


class Fetch(
    ApiTypes[
        "Fetch.Request",
        "Fetch.Answer",
        "Fetch.Response",
    ]
):
    class RequestReplicaState(Entity):
        replica_id: int
        replica_epoch: int

    class RequestPartition(Entity):
        partition: int
        current_leader_epoch: int
        fetch_offset: int
        last_fetched_epoch: int
        log_start_offset: int
        partition_max_bytes: int
        replica_directory_id: TopicId | None
        high_watermark: int

    class RequestTopic(Entity):
        topic: str
        topic_id: TopicId | None
        partitions: Sequence[Fetch.RequestPartition]

    class RequestForgottenTopicsData(Entity):
        topic: str
        topic_id: TopicId | None
        partitions: Sequence[int]

    class Request(Entity):
        cluster_id: str | None
        replica_id: int
        replica_state: Fetch.RequestReplicaState
        max_wait_ms: int
        min_bytes: int
        max_bytes: int
        isolation_level: int
        session_id: int
        session_epoch: int
        topics: Sequence[Fetch.RequestTopic]
        forgotten_topics_data: Sequence[Fetch.RequestForgottenTopicsData]
        rack_id: str

    class ResponseDivergingEpoch(Entity):
        epoch: int
        end_offset: int

    class ResponseCurrentLeader(Entity):
        leader_id: int
        leader_epoch: int

    class ResponseSnapshotId(Entity):
        end_offset: int
        epoch: int

    class ResponseDroppedDeletions(Entity):
        mark: int
        highest: int

    class ResponseAbortedTransaction(Entity):
        producer_id: int
        first_offset: int

    class ResponsePartition(Entity):
        partition_index: int
        error_code: int
        high_watermark: int
        last_stable_offset: int
        log_start_offset: int
        diverging_epoch: Fetch.ResponseDivergingEpoch
        current_leader: Fetch.ResponseCurrentLeader
        snapshot_id: Fetch.ResponseSnapshotId
        dropped_deletions: Fetch.ResponseDroppedDeletions
        aborted_transactions: Sequence[Fetch.ResponseAbortedTransaction] | None
        preferred_read_replica: int
        records: bytes | None

    class ResponseResponse(Entity):
        topic: str
        topic_id: TopicId | None
        partitions: Sequence[Fetch.ResponsePartition]

    class ResponseNodeEndpoint(Entity):
        node_id: int
        host: str
        port: int
        rack: str | None

    class Response(Entity):
        throttle_time_ms: int
        error_code: int
        session_id: int
        responses: Sequence[Fetch.ResponseResponse]
        node_endpoints: Sequence[Fetch.ResponseNodeEndpoint]

    class AnswerDivergingEpoch(TypedDict, total=False):
        epoch: int
        end_offset: int

    class AnswerCurrentLeader(TypedDict, total=False):
        leader_id: int
        leader_epoch: int

    class AnswerSnapshotId(TypedDict, total=False):
        end_offset: int
        epoch: int

    class AnswerDroppedDeletions(TypedDict, total=False):
        mark: int
        highest: int

    class AnswerAbortedTransaction(TypedDict, total=False):
        producer_id: int
        first_offset: int

    class AnswerPartition(TypedDict, total=False):
        partition_index: int
        error_code: int
        high_watermark: int
        last_stable_offset: int
        log_start_offset: int
        diverging_epoch: Fetch.AnswerDivergingEpoch
        current_leader: Fetch.AnswerCurrentLeader
        snapshot_id: Fetch.AnswerSnapshotId
        dropped_deletions: Fetch.AnswerDroppedDeletions
        aborted_transactions: Array[Fetch.AnswerAbortedTransaction] | None
        preferred_read_replica: int
        records: bytes | None

    class AnswerResponse(TypedDict, total=False):
        topic: str
        topic_id: TopicId | None
        partitions: Array[Fetch.AnswerPartition]

    class AnswerNodeEndpoint(TypedDict, total=False):
        node_id: int
        host: str
        port: int
        rack: str | None

    class Answer(Protocol):
        def __call__(
            self,
            *,
            throttle_time_ms: int = ...,
            error_code: int = ...,
            session_id: int = ...,
            responses: Array[Fetch.AnswerResponse] = ...,
            node_endpoints: Array[Fetch.AnswerNodeEndpoint] = ...,
        ) -> None: ...
