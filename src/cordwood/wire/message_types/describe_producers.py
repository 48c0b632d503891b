"""Generated from `messages/DescribeProducers.txt` by `make types`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, TypedDict

from cordwood.wire.api_types import ApiTypes, Array
from cordwood.wire.encoding.schema import Entity


class DescribeProducers(
    ApiTypes[
        "DescribeProducers.Request",
        "DescribeProducers.Answer",
        "DescribeProducers.Response",
    ]
):
    class RequestTopic(Entity):
        name: str
        partition_indexes: Sequence[int]

    class Request(Entity):
        topics: Sequence[DescribeProducers.RequestTopic]

    class ResponseActiveProducer(Entity):
        producer_id: int
        producer_epoch: int
        last_sequence: int
        last_timestamp: int
        coordinator_epoch: int
        current_txn_start_offset: int

    class ResponsePartition(Entity):
        partition_index: int
        error_code: int
        error_message: str | None
        active_producers: Sequence[DescribeProducers.ResponseActiveProducer]

    class ResponseTopic(Entity):
        name: str
        partitions: Sequence[DescribeProducers.ResponsePartition]

    class Response(Entity):
        throttle_time_ms: int
        topics: Sequence[DescribeProducers.ResponseTopic]

    class AnswerActiveProducer(TypedDict, total=False):
        producer_id: int
        producer_epoch: int
        last_sequence: int
        last_timestamp: int
        coordinator_epoch: int
        current_txn_start_offset: int

    class AnswerPartition(TypedDict, total=False):
        partition_index: int
        error_code: int
        error_message: str | None
        active_producers: Array[DescribeProducers.AnswerActiveProducer]

    class AnswerTopic(TypedDict, total=False):
        name: str
        partitions: Array[DescribeProducers.AnswerPartition]

    class Answer(Protocol):
        def __call__(
            self,
            *,
            throttle_time_ms: int = ...,
            topics: Array[DescribeProducers.AnswerTopic] = ...,
        ) -> None: ...
