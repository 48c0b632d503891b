"""Generated from `messages/ApiVersions.txt` by `make types`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, TypedDict

from cordwood.wire.api_types import ApiTypes, Array
from cordwood.wire.encoding.schema import Entity


class ApiVersions(
    ApiTypes[
        "ApiVersions.Request",
        "ApiVersions.Answer",
        "ApiVersions.Response",
    ]
):
    class Request(Entity):
        client_software_name: str
        client_software_version: str
        cluster_id: str | None
        node_id: int

    class ResponseApiKey(Entity):
        api_key: int
        min_version: int
        max_version: int

    class ResponseSupportedFeature(Entity):
        name: str
        min_version: int
        max_version: int

    class ResponseFinalizedFeature(Entity):
        name: str
        max_version_level: int
        min_version_level: int

    class Response(Entity):
        error_code: int
        api_keys: Sequence[ApiVersions.ResponseApiKey]
        throttle_time_ms: int
        supported_features: Sequence[ApiVersions.ResponseSupportedFeature]
        finalized_features_epoch: int
        finalized_features: Sequence[ApiVersions.ResponseFinalizedFeature]
        zk_migration_ready: bool

    class AnswerApiKey(TypedDict, total=False):
        api_key: int
        min_version: int
        max_version: int

    class AnswerSupportedFeature(TypedDict, total=False):
        name: str
        min_version: int
        max_version: int

    class AnswerFinalizedFeature(TypedDict, total=False):
        name: str
        max_version_level: int
        min_version_level: int

    class Answer(Protocol):
        def __call__(
            self,
            *,
            error_code: int = ...,
            api_keys: Array[ApiVersions.AnswerApiKey] = ...,
            throttle_time_ms: int = ...,
            supported_features: Array[ApiVersions.AnswerSupportedFeature] = ...,
            finalized_features_epoch: int = ...,
            finalized_features: Array[ApiVersions.AnswerFinalizedFeature] = ...,
            zk_migration_ready: bool = ...,
        ) -> None: ...
