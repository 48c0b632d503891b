"""Generated from `messages/AllocateProducerIds.txt` by `make types`."""

from typing import Protocol

from cordwood.wire.api_types import ApiTypes
from cordwood.wire.schema import Entity


class AllocateProducerIdsRequest(Entity):
    broker_id: int
    broker_epoch: int


class AllocateProducerIdsResponse(Entity):
    throttle_time_ms: int
    error_code: int
    producer_id_start: int
    producer_id_len: int


class AllocateProducerIdsAnswer(Protocol):
    def __call__(
        self,
        *,
        throttle_time_ms: int = ...,
        error_code: int = ...,
        producer_id_start: int = ...,
        producer_id_len: int = ...,
    ) -> None: ...


class AllocateProducerIds(
    ApiTypes[
        AllocateProducerIdsRequest,
        AllocateProducerIdsAnswer,
        AllocateProducerIdsResponse,
    ]
):
    pass
