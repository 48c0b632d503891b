"""Generated from `messages/AllocateProducerIds.txt` by `make types`."""

from __future__ import annotations

from typing import Protocol

from cordwood.wire.api_types import ApiTypes
from cordwood.wire.encoding.schema import Entity


class AllocateProducerIds(
    ApiTypes[
        "AllocateProducerIds.Request",
        "AllocateProducerIds.Answer",
        "AllocateProducerIds.Response",
    ]
):
    class Request(Entity):
        broker_id: int
        broker_epoch: int

    class Response(Entity):
        throttle_time_ms: int
        error_code: int
        producer_id_start: int
        producer_id_len: int

    class Answer(Protocol):
        def __call__(
            self,
            *,
            throttle_time_ms: int = ...,
            error_code: int = ...,
            producer_id_start: int = ...,
            producer_id_len: int = ...,
        ) -> None: ...
