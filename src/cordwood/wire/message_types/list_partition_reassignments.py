"""Generated from `messages/ListPartitionReassignments.txt` by `make types`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, TypedDict

from cordwood.wire.api_types import ApiTypes, Array
from cordwood.wire.encoding.schema import Entity


class ListPartitionReassignments(
    ApiTypes[
        "ListPartitionReassignments.Request",
        "ListPartitionReassignments.Answer",
        "ListPartitionReassignments.Response",
    ]
):
    class RequestTopic(Entity):
        name: str
        partition_indexes: Sequence[int]

    class Request(Entity):
        timeout_ms: int
        topics: Sequence[ListPartitionReassignments.RequestTopic] | None

    class ResponsePartition(Entity):
        partition_index: int
        replicas: Sequence[int]
        adding_replicas: Sequence[int]
        removing_replicas: Sequence[int]

    class ResponseTopic(Entity):
        name: str
        partitions: Sequence[ListPartitionReassignments.ResponsePartition]

    class Response(Entity):
        throttle_time_ms: int
        error_code: int
        error_message: str | None
        topics: Sequence[ListPartitionReassignments.ResponseTopic]

    class AnswerPartition(TypedDict, total=False):
        partition_index: int
        replicas: Array[int]
        adding_replicas: Array[int]
        removing_replicas: Array[int]

    class AnswerTopic(TypedDict, total=False):
        name: str
        partitions: Array[ListPartitionReassignments.AnswerPartition]

    class Answer(Protocol):
        def __call__(
            self,
            *,
            throttle_time_ms: int = ...,
            error_code: int = ...,
            error_message: str | None = ...,
            topics: Array[ListPartitionReassignments.AnswerTopic] = ...,
        ) -> None: ...
