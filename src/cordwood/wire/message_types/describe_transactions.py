"""Generated from `messages/DescribeTransactions.txt` by `make types`."""

from collections.abc import Sequence
from typing import Protocol, TypedDict

from cordwood.wire.api_types import ApiTypes, Array
from cordwood.wire.schema import Entity


class DescribeTransactionsRequest(Entity):
    transactional_ids: Sequence[str]


class DescribeTransactionsResponseTopic(Entity):
    topic: str
    partitions: Sequence[int]


class DescribeTransactionsResponseTransactionState(Entity):
    error_code: int
    transactional_id: str
    transaction_state: str
    transaction_timeout_ms: int
    transaction_start_time_ms: int
    producer_id: int
    producer_epoch: int
    topics: Sequence[DescribeTransactionsResponseTopic]


class DescribeTransactionsResponse(Entity):
    throttle_time_ms: int
    transaction_states: Sequence[DescribeTransactionsResponseTransactionState]


class DescribeTransactionsAnswerTopic(TypedDict, total=False):
    topic: str
    partitions: Array[int]


class DescribeTransactionsAnswerTransactionState(TypedDict, total=False):
    error_code: int
    transactional_id: str
    transaction_state: str
    transaction_timeout_ms: int
    transaction_start_time_ms: int
    producer_id: int
    producer_epoch: int
    topics: Array[DescribeTransactionsAnswerTopic]


class DescribeTransactionsAnswer(Protocol):
    def __call__(
        self,
        *,
        throttle_time_ms: int = ...,
        transaction_states: Array[DescribeTransactionsAnswerTransactionState] = ...,
    ) -> None: ...


class DescribeTransactions(
    ApiTypes[
        DescribeTransactionsRequest,
        DescribeTransactionsAnswer,
        DescribeTransactionsResponse,
    ]
):
    pass
