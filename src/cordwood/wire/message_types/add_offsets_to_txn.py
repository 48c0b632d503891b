"""Generated from `messages/AddOffsetsToTxn.txt` by `make types`."""

from __future__ import annotations

from typing import Protocol

from cordwood.wire.api_types import ApiTypes
from cordwood.wire.encoding.schema import Entity


class AddOffsetsToTxn(
    ApiTypes[
        "AddOffsetsToTxn.Request",
        "AddOffsetsToTxn.Answer",
        "AddOffsetsToTxn.Response",
    ]
):
    class Request(Entity):
        transactional_id: str
        producer_id: int
        producer_epoch: int
        group_id: str

    class Response(Entity):
        throttle_time_ms: int
        error_code: int

    class Answer(Protocol):
        def __call__(
            self,
            *,
            throttle_time_ms: int = ...,
            error_code: int = ...,
        ) -> None: ...
