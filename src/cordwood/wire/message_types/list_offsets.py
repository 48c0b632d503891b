"""Generated from `messages/ListOffsets.txt` by `make types`."""

from collections.abc import Sequence
from typing import Protocol, TypedDict

from cordwood.wire.api_types import ApiTypes, Array
from cordwood.wire.schema import Entity


class ListOffsetsRequestPartition(Entity):
    partition_index: int
    current_leader_epoch: int
    timestamp: int


class ListOffsetsRequestTopic(Entity):
    name: str
    partitions: Sequence[ListOffsetsRequestPartition]


class ListOffsetsRequest(Entity):
    replica_id: int
    isolation_level: int
    topics: Sequence[ListOffsetsRequestTopic]
    timeout_ms: int


class ListOffsetsResponsePartition(Entity):
    partition_index: int
    error_code: int
    timestamp: int
    offset: int
    leader_epoch: int


class ListOffsetsResponseTopic(Entity):
    name: str
    partitions: Sequence[ListOffsetsResponsePartition]


class ListOffsetsResponse(Entity):
    throttle_time_ms: int
    topics: Sequence[ListOffsetsResponseTopic]


class ListOffsetsAnswerPartition(TypedDict, total=False):
    partition_index: int
    error_code: int
    timestamp: int
    offset: int
    leader_epoch: int


class ListOffsetsAnswerTopic(TypedDict, total=False):
    name: str
    partitions: Array[ListOffsetsAnswerPartition]


class ListOffsetsAnswer(Protocol):
    def __call__(
        self,
        *,
        throttle_time_ms: int = ...,
        topics: Array[ListOffsetsAnswerTopic] = ...,
    ) -> None: ...


class ListOffsets(
    ApiTypes[
        ListOffsetsRequest,
        ListOffsetsAnswer,
        ListOffsetsResponse,
    ]
):
    pass
