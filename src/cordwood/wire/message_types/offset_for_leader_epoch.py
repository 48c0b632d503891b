"""Generated from `messages/OffsetForLeaderEpoch.txt` by `make types`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, TypedDict

from cordwood.wire.api_types import ApiTypes, Array
from cordwood.wire.encoding.schema import Entity


class OffsetForLeaderEpoch(
    ApiTypes[
        "OffsetForLeaderEpoch.Request",
        "OffsetForLeaderEpoch.Answer",
        "OffsetForLeaderEpoch.Response",
    ]
):
    class RequestPartition(Entity):
        partition: int
        current_leader_epoch: int
        leader_epoch: int

    class RequestTopic(Entity):
        topic: str
        partitions: Sequence[OffsetForLeaderEpoch.RequestPartition]

    class Request(Entity):
        replica_id: int
        topics: Sequence[OffsetForLeaderEpoch.RequestTopic]

    class ResponsePartition(Entity):
        error_code: int
        partition: int
        leader_epoch: int
        end_offset: int

    class ResponseTopic(Entity):
        topic: str
        partitions: Sequence[OffsetForLeaderEpoch.ResponsePartition]

    class Response(Entity):
        throttle_time_ms: int
        topics: Sequence[OffsetForLeaderEpoch.ResponseTopic]

    class AnswerPartition(TypedDict, total=False):
        error_code: int
        partition: int
        leader_epoch: int
        end_offset: int

    class AnswerTopic(TypedDict, total=False):
        topic: str
        partitions: Array[OffsetForLeaderEpoch.AnswerPartition]

    class Answer(Protocol):
        def __call__(
            self,
            *,
            throttle_time_ms: int = ...,
            topics: Array[OffsetForLeaderEpoch.AnswerTopic] = ...,
        ) -> None: ...
