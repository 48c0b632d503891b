"""Generated from `messages/AddOffsetsToTxn.txt` by `make types`."""

from typing import Protocol

from cordwood.wire.api_types import ApiTypes
from cordwood.wire.schema import Entity


class AddOffsetsToTxnRequest(Entity):
    transactional_id: str
    producer_id: int
    producer_epoch: int
    group_id: str


class AddOffsetsToTxnResponse(Entity):
    throttle_time_ms: int
    error_code: int


class AddOffsetsToTxnAnswer(Protocol):
    def __call__(
        self,
        *,
        throttle_time_ms: int = ...,
        error_code: int = ...,
    ) -> None: ...


class AddOffsetsToTxn(
    ApiTypes[
        AddOffsetsToTxnRequest,
        AddOffsetsToTxnAnswer,
        AddOffsetsToTxnResponse,
    ]
):
    pass
