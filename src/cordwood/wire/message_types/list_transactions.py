"""Generated from `messages/ListTransactions.txt` by `make types`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, TypedDict

from cordwood.wire.api_types import ApiTypes, Array
from cordwood.wire.encoding.schema import Entity


class ListTransactions(
    ApiTypes[
        "ListTransactions.Request",
        "ListTransactions.Answer",
        "ListTransactions.Response",
    ]
):
    class Request(Entity):
        state_filters: Sequence[str]
        producer_id_filters: Sequence[int]
        duration_filter: int
        transactional_id_pattern: str | None

    class ResponseTransactionState(Entity):
        transactional_id: str
        producer_id: int
        transaction_state: str

    class Response(Entity):
        throttle_time_ms: int
        error_code: int
        unknown_state_filters: Sequence[str]
        transaction_states: Sequence[ListTransactions.ResponseTransactionState]

    class AnswerTransactionState(TypedDict, total=False):
        transactional_id: str
        producer_id: int
        transaction_state: str

    class Answer(Protocol):
        def __call__(
            self,
            *,
            throttle_time_ms: int = ...,
            error_code: int = ...,
            unknown_state_filters: Array[str] = ...,
            transaction_states: Array[ListTransactions.AnswerTransactionState] = ...,
        ) -> None: ...
