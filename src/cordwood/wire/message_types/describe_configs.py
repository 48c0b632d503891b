"""Generated from `messages/DescribeConfigs.txt` by `make types`."""

from collections.abc import Sequence
from typing import Protocol, TypedDict

from cordwood.wire.api_types import ApiTypes, Array
from cordwood.wire.schema import Entity


class DescribeConfigsRequestResource(Entity):
    resource_type: int
    resource_name: str
    configuration_keys: Sequence[str] | None


class DescribeConfigsRequest(Entity):
    resources: Sequence[DescribeConfigsRequestResource]
    include_synonyms: bool
    include_documentation: bool


class DescribeConfigsResponseSynonym(Entity):
    name: str
    value: str | None
    source: int


class DescribeConfigsResponseConfig(Entity):
    name: str
    value: str | None
    read_only: bool
    config_source: int
    is_sensitive: bool
    synonyms: Sequence[DescribeConfigsResponseSynonym]
    config_type: int
    documentation: str | None


class DescribeConfigsResponseResult(Entity):
    error_code: int
    error_message: str | None
    resource_type: int
    resource_name: str
    configs: Sequence[DescribeConfigsResponseConfig]


class DescribeConfigsResponse(Entity):
    throttle_time_ms: int
    results: Sequence[DescribeConfigsResponseResult]


class DescribeConfigsAnswerSynonym(TypedDict, total=False):
    name: str
    value: str | None
    source: int


class DescribeConfigsAnswerConfig(TypedDict, total=False):
    name: str
    value: str | None
    read_only: bool
    config_source: int
    is_sensitive: bool
    synonyms: Array[DescribeConfigsAnswerSynonym]
    config_type: int
    documentation: str | None


class DescribeConfigsAnswerResult(TypedDict, total=False):
    error_code: int
    error_message: str | None
    resource_type: int
    resource_name: str
    configs: Array[DescribeConfigsAnswerConfig]


class DescribeConfigsAnswer(Protocol):
    def __call__(
        self,
        *,
        throttle_time_ms: int = ...,
        results: Array[DescribeConfigsAnswerResult] = ...,
    ) -> None: ...


class DescribeConfigs(
    ApiTypes[
        DescribeConfigsRequest,
        DescribeConfigsAnswer,
        DescribeConfigsResponse,
    ]
):
    pass
