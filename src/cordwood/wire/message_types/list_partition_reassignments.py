"""Generated from `messages/ListPartitionReassignments.txt` by `make types`."""

from collections.abc import Sequence
from typing import Protocol, TypedDict

from cordwood.wire.api_types import ApiTypes, Array
from cordwood.wire.schema import Entity


class ListPartitionReassignmentsRequestTopic(Entity):
    name: str
    partition_indexes: Sequence[int]


class ListPartitionReassignmentsRequest(Entity):
    timeout_ms: int
    topics: Sequence[ListPartitionReassignmentsRequestTopic] | None


class ListPartitionReassignmentsResponsePartition(Entity):
    partition_index: int
    replicas: Sequence[int]
    adding_replicas: Sequence[int]
    removing_replicas: Sequence[int]


class ListPartitionReassignmentsResponseTopic(Entity):
    name: str
    partitions: Sequence[ListPartitionReassignmentsResponsePartition]


class ListPartitionReassignmentsResponse(Entity):
    throttle_time_ms: int
    error_code: int
    error_message: str | None
    topics: Sequence[ListPartitionReassignmentsResponseTopic]


class ListPartitionReassignmentsAnswerPartition(TypedDict, total=False):
    partition_index: int
    replicas: Array[int]
    adding_replicas: Array[int]
    removing_replicas: Array[int]


class ListPartitionReassignmentsAnswerTopic(TypedDict, total=False):
    name: str
    partitions: Array[ListPartitionReassignmentsAnswerPartition]


class ListPartitionReassignmentsAnswer(Protocol):
    def __call__(
        self,
        *,
        throttle_time_ms: int = ...,
        error_code: int = ...,
        error_message: str | None = ...,
        topics: Array[ListPartitionReassignmentsAnswerTopic] = ...,
    ) -> None: ...


class ListPartitionReassignments(
    ApiTypes[
        ListPartitionReassignmentsRequest,
        ListPartitionReassignmentsAnswer,
        ListPartitionReassignmentsResponse,
    ]
):
    pass
