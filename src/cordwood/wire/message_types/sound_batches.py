"""Generated from `messages/SoundBatches.txt` by `make types`."""

from __future__ import annotations

from typing import Protocol

from cordwood.model.identifiers import TopicId
from cordwood.wire.api_types import ApiTypes
from cordwood.wire.encoding.schema import Entity


class SoundBatches(
    ApiTypes[
        "SoundBatches.Request",
        "SoundBatches.Answer",
        "SoundBatches.Response",
    ]
):
    class Request(Entity):
        broker_id: int
        broker_epoch: int
        topic_id: TopicId | None
        partition: int
        first_offset: int
        end_offset: int
        max_bytes: int

    class Response(Entity):
        throttle_time_ms: int
        error_code: int
        batches: bytes

    class Answer(Protocol):
        def __call__(
            self,
            *,
            throttle_time_ms: int = ...,
            error_code: int = ...,
            batches: bytes = ...,
        ) -> None: ...
