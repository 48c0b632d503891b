"""Generated from `messages/AlterConfigs.txt` by `make types`."""

from collections.abc import Sequence
from typing import Protocol, TypedDict

from cordwood.wire.api_types import ApiTypes, Array
from cordwood.wire.schema import Entity


class AlterConfigsRequestConfig(Entity):
    name: str
    value: str | None


class AlterConfigsRequestResource(Entity):
    resource_type: int
    resource_name: str
    configs: Sequence[AlterConfigsRequestConfig]


class AlterConfigsRequest(Entity):
    resources: Sequence[AlterConfigsRequestResource]
    validate_only: bool


class AlterConfigsResponseResponse(Entity):
    error_code: int
    error_message: str | None
    resource_type: int
    resource_name: str


class AlterConfigsResponse(Entity):
    throttle_time_ms: int
    responses: Sequence[AlterConfigsResponseResponse]


class AlterConfigsAnswerResponse(TypedDict, total=False):
    error_code: int
    error_message: str | None
    resource_type: int
    resource_name: str


class AlterConfigsAnswer(Protocol):
    def __call__(
        self,
        *,
        throttle_time_ms: int = ...,
        responses: Array[AlterConfigsAnswerResponse] = ...,
    ) -> None: ...


class AlterConfigs(
    ApiTypes[
        AlterConfigsRequest,
        AlterConfigsAnswer,
        AlterConfigsResponse,
    ]
):
    pass
