"""Generated from `messages/ApiVersions.txt` by `make types`."""

from collections.abc import Sequence
from typing import Protocol, TypedDict

from cordwood.wire.api_types import ApiTypes, Array
from cordwood.wire.schema import Entity


class ApiVersionsRequest(Entity):
    client_software_name: str
    client_software_version: str
    cluster_id: str | None
    node_id: int


class ApiVersionsResponseApiKey(Entity):
    api_key: int
    min_version: int
    max_version: int


class ApiVersionsResponseSupportedFeature(Entity):
    name: str
    min_version: int
    max_version: int


class ApiVersionsResponseFinalizedFeature(Entity):
    name: str
    max_version_level: int
    min_version_level: int


class ApiVersionsResponse(Entity):
    error_code: int
    api_keys: Sequence[ApiVersionsResponseApiKey]
    throttle_time_ms: int
    supported_features: Sequence[ApiVersionsResponseSupportedFeature]
    finalized_features_epoch: int
    finalized_features: Sequence[ApiVersionsResponseFinalizedFeature]
    zk_migration_ready: bool


class ApiVersionsAnswerApiKey(TypedDict, total=False):
    api_key: int
    min_version: int
    max_version: int


class ApiVersionsAnswerSupportedFeature(TypedDict, total=False):
    name: str
    min_version: int
    max_version: int


class ApiVersionsAnswerFinalizedFeature(TypedDict, total=False):
    name: str
    max_version_level: int
    min_version_level: int


class ApiVersionsAnswer(Protocol):
    def __call__(
        self,
        *,
        error_code: int = ...,
        api_keys: Array[ApiVersionsAnswerApiKey] = ...,
        throttle_time_ms: int = ...,
        supported_features: Array[ApiVersionsAnswerSupportedFeature] = ...,
        finalized_features_epoch: int = ...,
        finalized_features: Array[ApiVersionsAnswerFinalizedFeature] = ...,
        zk_migration_ready: bool = ...,
    ) -> None: ...


class ApiVersions(
    ApiTypes[
        ApiVersionsRequest,
        ApiVersionsAnswer,
        ApiVersionsResponse,
    ]
):
    pass
