"""Generated from `messages/WriteTxnMarkers.txt` by `make types`."""

from collections.abc import Sequence
from typing import Protocol, TypedDict

from cordwood.wire.api_types import ApiTypes, Array
from cordwood.wire.schema import Entity


class WriteTxnMarkersRequestTopic(Entity):
    name: str
    partition_indexes: Sequence[int]


class WriteTxnMarkersRequestMarker(Entity):
    producer_id: int
    producer_epoch: int
    transaction_result: bool
    topics: Sequence[WriteTxnMarkersRequestTopic]
    coordinator_epoch: int
    transaction_version: int


class WriteTxnMarkersRequest(Entity):
    markers: Sequence[WriteTxnMarkersRequestMarker]


class WriteTxnMarkersResponsePartition(Entity):
    partition_index: int
    error_code: int


class WriteTxnMarkersResponseTopic(Entity):
    name: str
    partitions: Sequence[WriteTxnMarkersResponsePartition]


class WriteTxnMarkersResponseMarker(Entity):
    producer_id: int
    topics: Sequence[WriteTxnMarkersResponseTopic]


class WriteTxnMarkersResponse(Entity):
    markers: Sequence[WriteTxnMarkersResponseMarker]


class WriteTxnMarkersAnswerPartition(TypedDict, total=False):
    partition_index: int
    error_code: int


class WriteTxnMarkersAnswerTopic(TypedDict, total=False):
    name: str
    partitions: Array[WriteTxnMarkersAnswerPartition]


class WriteTxnMarkersAnswerMarker(TypedDict, total=False):
    producer_id: int
    topics: Array[WriteTxnMarkersAnswerTopic]


class WriteTxnMarkersAnswer(Protocol):
    def __call__(
        self,
        *,
        markers: Array[WriteTxnMarkersAnswerMarker] = ...,
    ) -> None: ...


class WriteTxnMarkers(
    ApiTypes[
        WriteTxnMarkersRequest,
        WriteTxnMarkersAnswer,
        WriteTxnMarkersResponse,
    ]
):
    pass
