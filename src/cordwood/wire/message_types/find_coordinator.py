"""Generated from `messages/FindCoordinator.txt` by `make types`."""

from collections.abc import Sequence
from typing import Protocol, TypedDict

from cordwood.wire.api_types import ApiTypes, Array
from cordwood.wire.schema import Entity


class FindCoordinatorRequest(Entity):
    key: str
    key_type: int
    coordinator_keys: Sequence[str]


class FindCoordinatorResponseCoordinator(Entity):
    key: str
    node_id: int
    host: str
    port: int
    error_code: int
    error_message: str | None


class FindCoordinatorResponse(Entity):
    throttle_time_ms: int
    error_code: int
    error_message: str | None
    node_id: int
    host: str
    port: int
    coordinators: Sequence[FindCoordinatorResponseCoordinator]


class FindCoordinatorAnswerCoordinator(TypedDict, total=False):
    key: str
    node_id: int
    host: str
    port: int
    error_code: int
    error_message: str | None


class FindCoordinatorAnswer(Protocol):
    def __call__(
        self,
        *,
        throttle_time_ms: int = ...,
        error_code: int = ...,
        error_message: str | None = ...,
        node_id: int = ...,
        host: str = ...,
        port: int = ...,
        coordinators: Array[FindCoordinatorAnswerCoordinator] = ...,
    ) -> None: ...


class FindCoordinator(
    ApiTypes[
        FindCoordinatorRequest,
        FindCoordinatorAnswer,
        FindCoordinatorResponse,
    ]
):
    pass
