"""Generated from `messages/FetchSnapshot.txt` by `make types`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, TypedDict

from cordwood.model.identifiers import TopicId
from cordwood.wire.api_types import ApiTypes, Array
from cordwood.wire.encoding.schema import Entity


class FetchSnapshot(
    ApiTypes[
        "FetchSnapshot.Request",
        "FetchSnapshot.Answer",
        "FetchSnapshot.Response",
    ]
):
    class RequestSnapshotId(Entity):
        end_offset: int
        epoch: int

    class RequestPartition(Entity):
        partition: int
        current_leader_epoch: int
        snapshot_id: FetchSnapshot.RequestSnapshotId
        position: int
        replica_directory_id: TopicId | None

    class RequestTopic(Entity):
        name: str
        partitions: Sequence[FetchSnapshot.RequestPartition]

    class Request(Entity):
        cluster_id: str | None
        replica_id: int
        max_bytes: int
        topics: Sequence[FetchSnapshot.RequestTopic]

    class ResponseSnapshotId(Entity):
        end_offset: int
        epoch: int

    class ResponseCurrentLeader(Entity):
        leader_id: int
        leader_epoch: int

    class ResponsePartition(Entity):
        index: int
        error_code: int
        snapshot_id: FetchSnapshot.ResponseSnapshotId
        current_leader: FetchSnapshot.ResponseCurrentLeader
        size: int
        position: int
        unaligned_records: bytes | None

    class ResponseTopic(Entity):
        name: str
        partitions: Sequence[FetchSnapshot.ResponsePartition]

    class ResponseNodeEndpoint(Entity):
        node_id: int
        host: str
        port: int

    class Response(Entity):
        throttle_time_ms: int
        error_code: int
        topics: Sequence[FetchSnapshot.ResponseTopic]
        node_endpoints: Sequence[FetchSnapshot.ResponseNodeEndpoint]

    class AnswerSnapshotId(TypedDict, total=False):
        end_offset: int
        epoch: int

    class AnswerCurrentLeader(TypedDict, total=False):
        leader_id: int
        leader_epoch: int

    class AnswerPartition(TypedDict, total=False):
        index: int
        error_code: int
        snapshot_id: FetchSnapshot.AnswerSnapshotId
        current_leader: FetchSnapshot.AnswerCurrentLeader
        size: int
        position: int
        unaligned_records: bytes | None

    class AnswerTopic(TypedDict, total=False):
        name: str
        partitions: Array[FetchSnapshot.AnswerPartition]

    class AnswerNodeEndpoint(TypedDict, total=False):
        node_id: int
        host: str
        port: int

    class Answer(Protocol):
        def __call__(
            self,
            *,
            throttle_time_ms: int = ...,
            error_code: int = ...,
            topics: Array[FetchSnapshot.AnswerTopic] = ...,
            node_endpoints: Array[FetchSnapshot.AnswerNodeEndpoint] = ...,
        ) -> None: ...
