"""Generated from `messages/InitProducerId.txt` by `make types`."""

from __future__ import annotations

from typing import Protocol

from cordwood.wire.api_types import ApiTypes
from cordwood.wire.encoding.schema import Entity


class InitProducerId(
    ApiTypes[
        "InitProducerId.Request",
        "InitProducerId.Answer",
        "InitProducerId.Response",
    ]
):
    class Request(Entity):
        transactional_id: str | None
        transaction_timeout_ms: int
        producer_id: int
        producer_epoch: int
        enable2_pc: bool
        keep_prepared_txn: bool

    class Response(Entity):
        throttle_time_ms: int
        error_code: int
        producer_id: int
        producer_epoch: int
        ongoing_txn_producer_id: int
        ongoing_txn_producer_epoch: int

    class Answer(Protocol):
        def __call__(
            self,
            *,
            throttle_time_ms: int = ...,
            error_code: int = ...,
            producer_id: int = ...,
            producer_epoch: int = ...,
            ongoing_txn_producer_id: int = ...,
            ongoing_txn_producer_epoch: int = ...,
        ) -> None: ...
