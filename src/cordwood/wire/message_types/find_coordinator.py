"""Generated from `messages/FindCoordinator.txt` by `make types`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, TypedDict

from cordwood.wire.api_types import ApiTypes, Array
from cordwood.wire.encoding.schema import Entity


class FindCoordinator(
    ApiTypes[
        "FindCoordinator.Request",
        "FindCoordinator.Answer",
        "FindCoordinator.Response",
    ]
):
    class Request(Entity):
        key: str
        key_type: int
        coordinator_keys: Sequence[str]

    class ResponseCoordinator(Entity):
        key: str
        node_id: int
        host: str
        port: int
        error_code: int
        error_message: str | None

    class Response(Entity):
        throttle_time_ms: int
        error_code: int
        error_message: str | None
        node_id: int
        host: str
        port: int
        coordinators: Sequence[FindCoordinator.ResponseCoordinator]

    class AnswerCoordinator(TypedDict, total=False):
        key: str
        node_id: int
        host: str
        port: int
        error_code: int
        error_message: str | None

    class Answer(Protocol):
        def __call__(
            self,
            *,
            throttle_time_ms: int = ...,
            error_code: int = ...,
            error_message: str | None = ...,
            node_id: int = ...,
            host: str = ...,
            port: int = ...,
            coordinators: Array[FindCoordinator.AnswerCoordinator] = ...,
        ) -> None: ...
