"""Generated from `messages/AlterPartitionReassignments.txt` by `make types`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, TypedDict

from cordwood.wire.api_types import ApiTypes, Array
from cordwood.wire.encoding.schema import Entity


class AlterPartitionReassignments(
    ApiTypes[
        "AlterPartitionReassignments.Request",
        "AlterPartitionReassignments.Answer",
        "AlterPartitionReassignments.Response",
    ]
):
    class RequestPartition(Entity):
        partition_index: int
        replicas: Sequence[int] | None

    class RequestTopic(Entity):
        name: str
        partitions: Sequence[AlterPartitionReassignments.RequestPartition]

    class Request(Entity):
        timeout_ms: int
        allow_replication_factor_change: bool
        topics: Sequence[AlterPartitionReassignments.RequestTopic]

    class ResponsePartition(Entity):
        partition_index: int
        error_code: int
        error_message: str | None

    class ResponseResponse(Entity):
        name: str
        partitions: Sequence[AlterPartitionReassignments.ResponsePartition]

    class Response(Entity):
        throttle_time_ms: int
        allow_replication_factor_change: bool
        error_code: int
        error_message: str | None
        responses: Sequence[AlterPartitionReassignments.ResponseResponse]

    class AnswerPartition(TypedDict, total=False):
        partition_index: int
        error_code: int
        error_message: str | None

    class AnswerResponse(TypedDict, total=False):
        name: str
        partitions: Array[AlterPartitionReassignments.AnswerPartition]

    class Answer(Protocol):
        def __call__(
            self,
            *,
            throttle_time_ms: int = ...,
            allow_replication_factor_change: bool = ...,
            error_code: int = ...,
            error_message: str | None = ...,
            responses: Array[AlterPartitionReassignments.AnswerResponse] = ...,
        ) -> None: ...
