"""Generated from `messages/AlterPartitionReassignments.txt` by `make types`."""

from collections.abc import Sequence
from typing import Protocol, TypedDict

from cordwood.wire.api_types import ApiTypes, Array
from cordwood.wire.schema import Entity


class AlterPartitionReassignmentsRequestPartition(Entity):
    partition_index: int
    replicas: Sequence[int] | None


class AlterPartitionReassignmentsRequestTopic(Entity):
    name: str
    partitions: Sequence[AlterPartitionReassignmentsRequestPartition]


class AlterPartitionReassignmentsRequest(Entity):
    timeout_ms: int
    allow_replication_factor_change: bool
    topics: Sequence[AlterPartitionReassignmentsRequestTopic]


class AlterPartitionReassignmentsResponsePartition(Entity):
    partition_index: int
    error_code: int
    error_message: str | None


class AlterPartitionReassignmentsResponseResponse(Entity):
    name: str
    partitions: Sequence[AlterPartitionReassignmentsResponsePartition]


class AlterPartitionReassignmentsResponse(Entity):
    throttle_time_ms: int
    allow_replication_factor_change: bool
    error_code: int
    error_message: str | None
    responses: Sequence[AlterPartitionReassignmentsResponseResponse]


class AlterPartitionReassignmentsAnswerPartition(TypedDict, total=False):
    partition_index: int
    error_code: int
    error_message: str | None


class AlterPartitionReassignmentsAnswerResponse(TypedDict, total=False):
    name: str
    partitions: Array[AlterPartitionReassignmentsAnswerPartition]


class AlterPartitionReassignmentsAnswer(Protocol):
    def __call__(
        self,
        *,
        throttle_time_ms: int = ...,
        allow_replication_factor_change: bool = ...,
        error_code: int = ...,
        error_message: str | None = ...,
        responses: Array[AlterPartitionReassignmentsAnswerResponse] = ...,
    ) -> None: ...


class AlterPartitionReassignments(
    ApiTypes[
        AlterPartitionReassignmentsRequest,
        AlterPartitionReassignmentsAnswer,
        AlterPartitionReassignmentsResponse,
    ]
):
    pass
