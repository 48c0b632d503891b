"""Generated from `messages/UpdateFeatures.txt` by `make types`."""

from collections.abc import Sequence
from typing import Protocol, TypedDict

from cordwood.wire.api_types import ApiTypes, Array
from cordwood.wire.schema import Entity


class UpdateFeaturesRequestFeatureUpdate(Entity):
    feature: str
    max_version_level: int
    allow_downgrade: bool
    upgrade_type: int


class UpdateFeaturesRequest(Entity):
    timeout_ms: int
    feature_updates: Sequence[UpdateFeaturesRequestFeatureUpdate]
    validate_only: bool


class UpdateFeaturesResponseResult(Entity):
    feature: str
    error_code: int
    error_message: str | None


class UpdateFeaturesResponse(Entity):
    throttle_time_ms: int
    error_code: int
    error_message: str | None
    results: Sequence[UpdateFeaturesResponseResult]


class UpdateFeaturesAnswerResult(TypedDict, total=False):
    feature: str
    error_code: int
    error_message: str | None


class UpdateFeaturesAnswer(Protocol):
    def __call__(
        self,
        *,
        throttle_time_ms: int = ...,
        error_code: int = ...,
        error_message: str | None = ...,
        results: Array[UpdateFeaturesAnswerResult] = ...,
    ) -> None: ...


class UpdateFeatures(
    ApiTypes[
        UpdateFeaturesRequest,
        UpdateFeaturesAnswer,
        UpdateFeaturesResponse,
    ]
):
    pass
