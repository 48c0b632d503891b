"""Generated from `messages/DescribeConfigs.txt` by `make types`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, TypedDict

from cordwood.wire.api_types import ApiTypes, Array
from cordwood.wire.encoding.schema import Entity


class DescribeConfigs(
    ApiTypes[
        "DescribeConfigs.Request",
        "DescribeConfigs.Answer",
        "DescribeConfigs.Response",
    ]
):
    class RequestResource(Entity):
        resource_type: int
        resource_name: str
        configuration_keys: Sequence[str] | None

    class Request(Entity):
        resources: Sequence[DescribeConfigs.RequestResource]
        include_synonyms: bool
        include_documentation: bool

    class ResponseSynonym(Entity):
        name: str
        value: str | None
        source: int

    class ResponseConfig(Entity):
        name: str
        value: str | None
        read_only: bool
        config_source: int
        is_sensitive: bool
        synonyms: Sequence[DescribeConfigs.ResponseSynonym]
        config_type: int
        documentation: str | None

    class ResponseResult(Entity):
        error_code: int
        error_message: str | None
        resource_type: int
        resource_name: str
        configs: Sequence[DescribeConfigs.ResponseConfig]

    class Response(Entity):
        throttle_time_ms: int
        results: Sequence[DescribeConfigs.ResponseResult]

    class AnswerSynonym(TypedDict, total=False):
        name: str
        value: str | None
        source: int

    class AnswerConfig(TypedDict, total=False):
        name: str
        value: str | None
        read_only: bool
        config_source: int
        is_sensitive: bool
        synonyms: Array[DescribeConfigs.AnswerSynonym]
        config_type: int
        documentation: str | None

    class AnswerResult(TypedDict, total=False):
        error_code: int
        error_message: str | None
        resource_type: int
        resource_name: str
        configs: Array[DescribeConfigs.AnswerConfig]

    class Answer(Protocol):
        def __call__(
            self,
            *,
            throttle_time_ms: int = ...,
            results: Array[DescribeConfigs.AnswerResult] = ...,
        ) -> None: ...
