"""Generated from `messages/ElectLeaders.txt` by `make types`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, TypedDict

from cordwood.wire.api_types import ApiTypes, Array
from cordwood.wire.encoding.schema import Entity


class ElectLeaders(
    ApiTypes[
        "ElectLeaders.Request",
        "ElectLeaders.Answer",
        "ElectLeaders.Response",
    ]
):
    class RequestTopicPartition(Entity):
        topic: str
        partitions: Sequence[int]

    class Request(Entity):
        election_type: int
        topic_partitions: Sequence[ElectLeaders.RequestTopicPartition] | None
        timeout_ms: int
        leader: int
        begin_anew: bool

    class ResponsePartitionResult(Entity):
        partition_id: int
        error_code: int
        error_message: str | None

    class ResponseReplicaElectionResult(Entity):
        topic: str
        partition_result: Sequence[ElectLeaders.ResponsePartitionResult]

    class Response(Entity):
        throttle_time_ms: int
        error_code: int
        replica_election_results: Sequence[ElectLeaders.ResponseReplicaElectionResult]

    class AnswerPartitionResult(TypedDict, total=False):
        partition_id: int
        error_code: int
        error_message: str | None

    class AnswerReplicaElectionResult(TypedDict, total=False):
        topic: str
        partition_result: Array[ElectLeaders.AnswerPartitionResult]

    class Answer(Protocol):
        def __call__(
            self,
            *,
            throttle_time_ms: int = ...,
            error_code: int = ...,
            replica_election_results: Array[ElectLeaders.AnswerReplicaElectionResult] = ...,
        ) -> None: ...
