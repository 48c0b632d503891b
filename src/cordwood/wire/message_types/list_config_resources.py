"""Generated from `messages/ListConfigResources.txt` by `make types`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, TypedDict

from cordwood.wire.api_types import ApiTypes, Array
from cordwood.wire.encoding.schema import Entity


class ListConfigResources(
    ApiTypes[
        "ListConfigResources.Request",
        "ListConfigResources.Answer",
        "ListConfigResources.Response",
    ]
):
    class Request(Entity):
        resource_types: Sequence[int]

    class ResponseConfigResource(Entity):
        resource_name: str
        resource_type: int

    class Response(Entity):
        throttle_time_ms: int
        error_code: int
        config_resources: Sequence[ListConfigResources.ResponseConfigResource]

    class AnswerConfigResource(TypedDict, total=False):
        resource_name: str
        resource_type: int

    class Answer(Protocol):
        def __call__(
            self,
            *,
            throttle_time_ms: int = ...,
            error_code: int = ...,
            config_resources: Array[ListConfigResources.AnswerConfigResource] = ...,
        ) -> None: ...
