"""Generated from `messages/OffsetForLeaderEpoch.txt` by `make types`."""

from collections.abc import Sequence
from typing import Protocol, TypedDict

from cordwood.wire.api_types import ApiTypes, Array
from cordwood.wire.schema import Entity


class OffsetForLeaderEpochRequestPartition(Entity):
    partition: int
    current_leader_epoch: int
    leader_epoch: int


class OffsetForLeaderEpochRequestTopic(Entity):
    topic: str
    partitions: Sequence[OffsetForLeaderEpochRequestPartition]


class OffsetForLeaderEpochRequest(Entity):
    replica_id: int
    topics: Sequence[OffsetForLeaderEpochRequestTopic]


class OffsetForLeaderEpochResponsePartition(Entity):
    error_code: int
    partition: int
    leader_epoch: int
    end_offset: int


class OffsetForLeaderEpochResponseTopic(Entity):
    topic: str
    partitions: Sequence[OffsetForLeaderEpochResponsePartition]


class OffsetForLeaderEpochResponse(Entity):
    throttle_time_ms: int
    topics: Sequence[OffsetForLeaderEpochResponseTopic]


class OffsetForLeaderEpochAnswerPartition(TypedDict, total=False):
    error_code: int
    partition: int
    leader_epoch: int
    end_offset: int


class OffsetForLeaderEpochAnswerTopic(TypedDict, total=False):
    topic: str
    partitions: Array[OffsetForLeaderEpochAnswerPartition]


class OffsetForLeaderEpochAnswer(Protocol):
    def __call__(
        self,
        *,
        throttle_time_ms: int = ...,
        topics: Array[OffsetForLeaderEpochAnswerTopic] = ...,
    ) -> None: ...


class OffsetForLeaderEpoch(
    ApiTypes[
        OffsetForLeaderEpochRequest,
        OffsetForLeaderEpochAnswer,
        OffsetForLeaderEpochResponse,
    ]
):
    pass
