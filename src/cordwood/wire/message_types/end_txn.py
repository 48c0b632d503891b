"""Generated from `messages/EndTxn.txt` by `make types`."""

from typing import Protocol

from cordwood.wire.api_types import ApiTypes
from cordwood.wire.schema import Entity


class EndTxnRequest(Entity):
    transactional_id: str
    producer_id: int
    producer_epoch: int
    committed: bool


class EndTxnResponse(Entity):
    throttle_time_ms: int
    error_code: int
    producer_id: int
    producer_epoch: int


class EndTxnAnswer(Protocol):
    def __call__(
        self,
        *,
        throttle_time_ms: int = ...,
        error_code: int = ...,
        producer_id: int = ...,
        producer_epoch: int = ...,
    ) -> None: ...


class EndTxn(
    ApiTypes[
        EndTxnRequest,
        EndTxnAnswer,
        EndTxnResponse,
    ]
):
    pass
