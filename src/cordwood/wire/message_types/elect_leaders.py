"""Generated from `messages/ElectLeaders.txt` by `make types`."""

from collections.abc import Sequence
from typing import Protocol, TypedDict

from cordwood.wire.api_types import ApiTypes, Array
from cordwood.wire.schema import Entity


class ElectLeadersRequestTopicPartition(Entity):
    topic: str
    partitions: Sequence[int]


class ElectLeadersRequest(Entity):
    election_type: int
    topic_partitions: Sequence[ElectLeadersRequestTopicPartition] | None
    timeout_ms: int


class ElectLeadersResponsePartitionResult(Entity):
    partition_id: int
    error_code: int
    error_message: str | None


class ElectLeadersResponseReplicaElectionResult(Entity):
    topic: str
    partition_result: Sequence[ElectLeadersResponsePartitionResult]


class ElectLeadersResponse(Entity):
    throttle_time_ms: int
    error_code: int
    replica_election_results: Sequence[ElectLeadersResponseReplicaElectionResult]


class ElectLeadersAnswerPartitionResult(TypedDict, total=False):
    partition_id: int
    error_code: int
    error_message: str | None


class ElectLeadersAnswerReplicaElectionResult(TypedDict, total=False):
    topic: str
    partition_result: Array[ElectLeadersAnswerPartitionResult]


class ElectLeadersAnswer(Protocol):
    def __call__(
        self,
        *,
        throttle_time_ms: int = ...,
        error_code: int = ...,
        replica_election_results: Array[ElectLeadersAnswerReplicaElectionResult] = ...,
    ) -> None: ...


class ElectLeaders(
    ApiTypes[
        ElectLeadersRequest,
        ElectLeadersAnswer,
        ElectLeadersResponse,
    ]
):
    pass
