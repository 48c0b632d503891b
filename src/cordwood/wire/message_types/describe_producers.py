"""Generated from `messages/DescribeProducers.txt` by `make types`."""

from collections.abc import Sequence
from typing import Protocol, TypedDict

from cordwood.wire.api_types import ApiTypes, Array
from cordwood.wire.schema import Entity


class DescribeProducersRequestTopic(Entity):
    name: str
    partition_indexes: Sequence[int]


class DescribeProducersRequest(Entity):
    topics: Sequence[DescribeProducersRequestTopic]


class DescribeProducersResponseActiveProducer(Entity):
    producer_id: int
    producer_epoch: int
    last_sequence: int
    last_timestamp: int
    coordinator_epoch: int
    current_txn_start_offset: int


class DescribeProducersResponsePartition(Entity):
    partition_index: int
    error_code: int
    error_message: str | None
    active_producers: Sequence[DescribeProducersResponseActiveProducer]


class DescribeProducersResponseTopic(Entity):
    name: str
    partitions: Sequence[DescribeProducersResponsePartition]


class DescribeProducersResponse(Entity):
    throttle_time_ms: int
    topics: Sequence[DescribeProducersResponseTopic]


class DescribeProducersAnswerActiveProducer(TypedDict, total=False):
    producer_id: int
    producer_epoch: int
    last_sequence: int
    last_timestamp: int
    coordinator_epoch: int
    current_txn_start_offset: int


class DescribeProducersAnswerPartition(TypedDict, total=False):
    partition_index: int
    error_code: int
    error_message: str | None
    active_producers: Array[DescribeProducersAnswerActiveProducer]


class DescribeProducersAnswerTopic(TypedDict, total=False):
    name: str
    partitions: Array[DescribeProducersAnswerPartition]


class DescribeProducersAnswer(Protocol):
    def __call__(
        self,
        *,
        throttle_time_ms: int = ...,
        topics: Array[DescribeProducersAnswerTopic] = ...,
    ) -> None: ...


class DescribeProducers(
    ApiTypes[
        DescribeProducersRequest,
        DescribeProducersAnswer,
        DescribeProducersResponse,
    ]
):
    pass
