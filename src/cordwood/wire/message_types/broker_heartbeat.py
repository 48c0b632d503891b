"""Generated from `messages/BrokerHeartbeat.txt` by `make types`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from cordwood.model.identifiers import TopicId
from cordwood.wire.api_types import ApiTypes
from cordwood.wire.encoding.schema import Entity


class BrokerHeartbeat(
    ApiTypes[
        "BrokerHeartbeat.Request",
        "BrokerHeartbeat.Answer",
        "BrokerHeartbeat.Response",
    ]
):
    class Request(Entity):
        broker_id: int
        broker_epoch: int
        current_metadata_offset: int
        want_fence: bool
        want_shut_down: bool
        offline_log_dirs: Sequence[TopicId | None]
        cordoned_log_dirs: Sequence[TopicId | None] | None

    class Response(Entity):
        throttle_time_ms: int
        error_code: int
        is_caught_up: bool
        is_fenced: bool
        should_shut_down: bool

    class Answer(Protocol):
        def __call__(
            self,
            *,
            throttle_time_ms: int = ...,
            error_code: int = ...,
            is_caught_up: bool = ...,
            is_fenced: bool = ...,
            should_shut_down: bool = ...,
        ) -> None: ...
