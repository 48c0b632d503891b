"""Generated from `messages/ListConfigResources.txt` by `make types`."""

from collections.abc import Sequence
from typing import Protocol, TypedDict

from cordwood.wire.api_types import ApiTypes, Array
from cordwood.wire.schema import Entity


class ListConfigResourcesRequest(Entity):
    resource_types: Sequence[int]


class ListConfigResourcesResponseConfigResource(Entity):
    resource_name: str
    resource_type: int


class ListConfigResourcesResponse(Entity):
    throttle_time_ms: int
    error_code: int
    config_resources: Sequence[ListConfigResourcesResponseConfigResource]


class ListConfigResourcesAnswerConfigResource(TypedDict, total=False):
    resource_name: str
    resource_type: int


class ListConfigResourcesAnswer(Protocol):
    def __call__(
        self,
        *,
        throttle_time_ms: int = ...,
        error_code: int = ...,
        config_resources: Array[ListConfigResourcesAnswerConfigResource] = ...,
    ) -> None: ...


class ListConfigResources(
    ApiTypes[
        ListConfigResourcesRequest,
        ListConfigResourcesAnswer,
        ListConfigResourcesResponse,
    ]
):
    pass
