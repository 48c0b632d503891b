"""Generated from `messages/EndTxn.txt` by `make types`."""

from __future__ import annotations

from typing import Protocol

from cordwood.wire.api_types import ApiTypes
from cordwood.wire.encoding.schema import Entity


class EndTxn(
    ApiTypes[
        "EndTxn.Request",
        "EndTxn.Answer",
        "EndTxn.Response",
    ]
):
    class Request(Entity):
        transactional_id: str
        producer_id: int
        producer_epoch: int
        committed: bool

    class Response(Entity):
        throttle_time_ms: int
        error_code: int
        producer_id: int
        producer_epoch: int

    class Answer(Protocol):
        def __call__(
            self,
            *,
            throttle_time_ms: int = ...,
            error_code: int = ...,
            producer_id: int = ...,
            producer_epoch: int = ...,
        ) -> None: ...
