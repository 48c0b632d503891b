"""Generated from `messages/IncrementalAlterConfigs.txt` by `make types`."""

from collections.abc import Sequence
from typing import Protocol, TypedDict

from cordwood.wire.api_types import ApiTypes, Array
from cordwood.wire.schema import Entity


class IncrementalAlterConfigsRequestConfig(Entity):
    name: str
    config_operation: int
    value: str | None


class IncrementalAlterConfigsRequestResource(Entity):
    resource_type: int
    resource_name: str
    configs: Sequence[IncrementalAlterConfigsRequestConfig]


class IncrementalAlterConfigsRequest(Entity):
    resources: Sequence[IncrementalAlterConfigsRequestResource]
    validate_only: bool


class IncrementalAlterConfigsResponseResponse(Entity):
    error_code: int
    error_message: str | None
    resource_type: int
    resource_name: str


class IncrementalAlterConfigsResponse(Entity):
    throttle_time_ms: int
    responses: Sequence[IncrementalAlterConfigsResponseResponse]


class IncrementalAlterConfigsAnswerResponse(TypedDict, total=False):
    error_code: int
    error_message: str | None
    resource_type: int
    resource_name: str


class IncrementalAlterConfigsAnswer(Protocol):
    def __call__(
        self,
        *,
        throttle_time_ms: int = ...,
        responses: Array[IncrementalAlterConfigsAnswerResponse] = ...,
    ) -> None: ...


class IncrementalAlterConfigs(
    ApiTypes[
        IncrementalAlterConfigsRequest,
        IncrementalAlterConfigsAnswer,
        IncrementalAlterConfigsResponse,
    ]
):
    pass
