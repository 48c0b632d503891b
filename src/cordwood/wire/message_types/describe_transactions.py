"""Generated from `messages/DescribeTransactions.txt` by `make types`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, TypedDict

from cordwood.wire.api_types import ApiTypes, Array
from cordwood.wire.encoding.schema import Entity


class DescribeTransactions(
    ApiTypes[
        "DescribeTransactions.Request",
        "DescribeTransactions.Answer",
        "DescribeTransactions.Response",
    ]
):
    class Request(Entity):
        transactional_ids: Sequence[str]

    class ResponseTopic(Entity):
        topic: str
        partitions: Sequence[int]

    class ResponseTransactionState(Entity):
        error_code: int
        transactional_id: str
        transaction_state: str
        transaction_timeout_ms: int
        transaction_start_time_ms: int
        producer_id: int
        producer_epoch: int
        topics: Sequence[DescribeTransactions.ResponseTopic]

    class Response(Entity):
        throttle_time_ms: int
        transaction_states: Sequence[DescribeTransactions.ResponseTransactionState]

    class AnswerTopic(TypedDict, total=False):
        topic: str
        partitions: Array[int]

    class AnswerTransactionState(TypedDict, total=False):
        error_code: int
        transactional_id: str
        transaction_state: str
        transaction_timeout_ms: int
        transaction_start_time_ms: int
        producer_id: int
        producer_epoch: int
        topics: Array[DescribeTransactions.AnswerTopic]

    class Answer(Protocol):
        def __call__(
            self,
            *,
            throttle_time_ms: int = ...,
            transaction_states: Array[DescribeTransactions.AnswerTransactionState] = ...,
        ) -> None: ...
