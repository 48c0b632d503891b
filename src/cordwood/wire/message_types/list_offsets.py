"""Generated from `messages/ListOffsets.txt` by `make types`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, TypedDict

from cordwood.wire.api_types import ApiTypes, Array
from cordwood.wire.encoding.schema import Entity


class ListOffsets(
    ApiTypes[
        "ListOffsets.Request",
        "ListOffsets.Answer",
        "ListOffsets.Response",
    ]
):
    class RequestPartition(Entity):
        partition_index: int
        current_leader_epoch: int
        timestamp: int

    class RequestTopic(Entity):
        name: str
        partitions: Sequence[ListOffsets.RequestPartition]

    class Request(Entity):
        replica_id: int
        isolation_level: int
        topics: Sequence[ListOffsets.RequestTopic]
        timeout_ms: int

    class ResponsePartition(Entity):
        partition_index: int
        error_code: int
        timestamp: int
        offset: int
        leader_epoch: int

    class ResponseTopic(Entity):
        name: str
        partitions: Sequence[ListOffsets.ResponsePartition]

    class Response(Entity):
        throttle_time_ms: int
        topics: Sequence[ListOffsets.ResponseTopic]

    class AnswerPartition(TypedDict, total=False):
        partition_index: int
        error_code: int
        timestamp: int
        offset: int
        leader_epoch: int

    class AnswerTopic(TypedDict, total=False):
        name: str
        partitions: Array[ListOffsets.AnswerPartition]

    class Answer(Protocol):
        def __call__(
            self,
            *,
            throttle_time_ms: int = ...,
            topics: Array[ListOffsets.AnswerTopic] = ...,
        ) -> None: ...
