"""Generated from `messages/AlterConfigs.txt` by `make types`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, TypedDict

from cordwood.wire.api_types import ApiTypes, Array
from cordwood.wire.encoding.schema import Entity


class AlterConfigs(
    ApiTypes[
        "AlterConfigs.Request",
        "AlterConfigs.Answer",
        "AlterConfigs.Response",
    ]
):
    class RequestConfig(Entity):
        name: str
        value: str | None

    class RequestResource(Entity):
        resource_type: int
        resource_name: str
        configs: Sequence[AlterConfigs.RequestConfig]

    class Request(Entity):
        resources: Sequence[AlterConfigs.RequestResource]
        validate_only: bool

    class ResponseResponse(Entity):
        error_code: int
        error_message: str | None
        resource_type: int
        resource_name: str

    class Response(Entity):
        throttle_time_ms: int
        responses: Sequence[AlterConfigs.ResponseResponse]

    class AnswerResponse(TypedDict, total=False):
        error_code: int
        error_message: str | None
        resource_type: int
        resource_name: str

    class Answer(Protocol):
        def __call__(
            self,
            *,
            throttle_time_ms: int = ...,
            responses: Array[AlterConfigs.AnswerResponse] = ...,
        ) -> None: ...
