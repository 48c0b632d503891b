"""Generated from `messages/WriteTxnMarkers.txt` by `make types`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, TypedDict

from cordwood.model.identifiers import TopicId
from cordwood.wire.api_types import ApiTypes, Array
from cordwood.wire.encoding.schema import Entity


class WriteTxnMarkers(
    ApiTypes[
        "WriteTxnMarkers.Request",
        "WriteTxnMarkers.Answer",
        "WriteTxnMarkers.Response",
    ]
):
    class RequestTopic(Entity):
        name: str
        partition_indexes: Sequence[int]
        topic_id: TopicId | None

    class RequestMarker(Entity):
        producer_id: int
        producer_epoch: int
        transaction_result: bool
        topics: Sequence[WriteTxnMarkers.RequestTopic]
        coordinator_epoch: int
        transaction_version: int
        durable: bool

    class Request(Entity):
        markers: Sequence[WriteTxnMarkers.RequestMarker]

    class ResponsePartition(Entity):
        partition_index: int
        error_code: int

    class ResponseTopic(Entity):
        name: str
        partitions: Sequence[WriteTxnMarkers.ResponsePartition]

    class ResponseMarker(Entity):
        producer_id: int
        topics: Sequence[WriteTxnMarkers.ResponseTopic]

    class Response(Entity):
        markers: Sequence[WriteTxnMarkers.ResponseMarker]

    class AnswerPartition(TypedDict, total=False):
        partition_index: int
        error_code: int

    class AnswerTopic(TypedDict, total=False):
        name: str
        partitions: Array[WriteTxnMarkers.AnswerPartition]

    class AnswerMarker(TypedDict, total=False):
        producer_id: int
        topics: Array[WriteTxnMarkers.AnswerTopic]

    class Answer(Protocol):
        def __call__(
            self,
            *,
            markers: Array[WriteTxnMarkers.AnswerMarker] = ...,
        ) -> None: ...
