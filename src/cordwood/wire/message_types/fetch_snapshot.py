"""Generated from `messages/FetchSnapshot.txt` by `make types`."""

from collections.abc import Sequence
from typing import Protocol, TypedDict

from cordwood.model.identifiers import TopicId
from cordwood.wire.api_types import ApiTypes, Array
from cordwood.wire.schema import Entity


class FetchSnapshotRequestSnapshotId(Entity):
    end_offset: int
    epoch: int


class FetchSnapshotRequestPartition(Entity):
    partition: int
    current_leader_epoch: int
    snapshot_id: FetchSnapshotRequestSnapshotId
    position: int
    replica_directory_id: TopicId | None


class FetchSnapshotRequestTopic(Entity):
    name: str
    partitions: Sequence[FetchSnapshotRequestPartition]


class FetchSnapshotRequest(Entity):
    cluster_id: str | None
    replica_id: int
    max_bytes: int
    topics: Sequence[FetchSnapshotRequestTopic]


class FetchSnapshotResponseSnapshotId(Entity):
    end_offset: int
    epoch: int


class FetchSnapshotResponseCurrentLeader(Entity):
    leader_id: int
    leader_epoch: int


class FetchSnapshotResponsePartition(Entity):
    index: int
    error_code: int
    snapshot_id: FetchSnapshotResponseSnapshotId
    current_leader: FetchSnapshotResponseCurrentLeader
    size: int
    position: int
    unaligned_records: bytes | None


class FetchSnapshotResponseTopic(Entity):
    name: str
    partitions: Sequence[FetchSnapshotResponsePartition]


class FetchSnapshotResponseNodeEndpoint(Entity):
    node_id: int
    host: str
    port: int


class FetchSnapshotResponse(Entity):
    throttle_time_ms: int
    error_code: int
    topics: Sequence[FetchSnapshotResponseTopic]
    node_endpoints: Sequence[FetchSnapshotResponseNodeEndpoint]


class FetchSnapshotAnswerSnapshotId(TypedDict, total=False):
    end_offset: int
    epoch: int


class FetchSnapshotAnswerCurrentLeader(TypedDict, total=False):
    leader_id: int
    leader_epoch: int


class FetchSnapshotAnswerPartition(TypedDict, total=False):
    index: int
    error_code: int
    snapshot_id: FetchSnapshotAnswerSnapshotId
    current_leader: FetchSnapshotAnswerCurrentLeader
    size: int
    position: int
    unaligned_records: bytes | None


class FetchSnapshotAnswerTopic(TypedDict, total=False):
    name: str
    partitions: Array[FetchSnapshotAnswerPartition]


class FetchSnapshotAnswerNodeEndpoint(TypedDict, total=False):
    node_id: int
    host: str
    port: int


class FetchSnapshotAnswer(Protocol):
    def __call__(
        self,
        *,
        throttle_time_ms: int = ...,
        error_code: int = ...,
        topics: Array[FetchSnapshotAnswerTopic] = ...,
        node_endpoints: Array[FetchSnapshotAnswerNodeEndpoint] = ...,
    ) -> None: ...


class FetchSnapshot(
    ApiTypes[
        FetchSnapshotRequest,
        FetchSnapshotAnswer,
        FetchSnapshotResponse,
    ]
):
    pass
