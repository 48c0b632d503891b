"""Generated from `messages/ListTransactions.txt` by `make types`."""

from collections.abc import Sequence
from typing import Protocol, TypedDict

from cordwood.wire.api_types import ApiTypes, Array
from cordwood.wire.schema import Entity


class ListTransactionsRequest(Entity):
    state_filters: Sequence[str]
    producer_id_filters: Sequence[int]
    duration_filter: int
    transactional_id_pattern: str | None


class ListTransactionsResponseTransactionState(Entity):
    transactional_id: str
    producer_id: int
    transaction_state: str


class ListTransactionsResponse(Entity):
    throttle_time_ms: int
    error_code: int
    unknown_state_filters: Sequence[str]
    transaction_states: Sequence[ListTransactionsResponseTransactionState]


class ListTransactionsAnswerTransactionState(TypedDict, total=False):
    transactional_id: str
    producer_id: int
    transaction_state: str


class ListTransactionsAnswer(Protocol):
    def __call__(
        self,
        *,
        throttle_time_ms: int = ...,
        error_code: int = ...,
        unknown_state_filters: Array[str] = ...,
        transaction_states: Array[ListTransactionsAnswerTransactionState] = ...,
    ) -> None: ...


class ListTransactions(
    ApiTypes[
        ListTransactionsRequest,
        ListTransactionsAnswer,
        ListTransactionsResponse,
    ]
):
    pass
