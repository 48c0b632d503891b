"""Generated from `messages/UpdateFeatures.txt` by `make types`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, TypedDict

from cordwood.wire.api_types import ApiTypes, Array
from cordwood.wire.encoding.schema import Entity


class UpdateFeatures(
    ApiTypes[
        "UpdateFeatures.Request",
        "UpdateFeatures.Answer",
        "UpdateFeatures.Response",
    ]
):
    class RequestFeatureUpdate(Entity):
        feature: str
        max_version_level: int
        allow_downgrade: bool
        upgrade_type: int

    class Request(Entity):
        timeout_ms: int
        feature_updates: Sequence[UpdateFeatures.RequestFeatureUpdate]
        validate_only: bool

    class ResponseResult(Entity):
        feature: str
        error_code: int
        error_message: str | None

    class Response(Entity):
        throttle_time_ms: int
        error_code: int
        error_message: str | None
        results: Sequence[UpdateFeatures.ResponseResult]

    class AnswerResult(TypedDict, total=False):
        feature: str
        error_code: int
        error_message: str | None

    class Answer(Protocol):
        def __call__(
            self,
            *,
            throttle_time_ms: int = ...,
            error_code: int = ...,
            error_message: str | None = ...,
            results: Array[UpdateFeatures.AnswerResult] = ...,
        ) -> None: ...
