"""Generated from `messages/DescribeClientQuotas.txt` by `make types`."""

from collections.abc import Sequence
from typing import Protocol, TypedDict

from cordwood.wire.api_types import ApiTypes, Array
from cordwood.wire.schema import Entity


class DescribeClientQuotasRequestComponent(Entity):
    entity_type: str
    match_type: int
    match: str | None


class DescribeClientQuotasRequest(Entity):
    components: Sequence[DescribeClientQuotasRequestComponent]
    strict: bool


class DescribeClientQuotasResponseEntity(Entity):
    entity_type: str
    entity_name: str | None


class DescribeClientQuotasResponseValue(Entity):
    key: str
    value: float


class DescribeClientQuotasResponseEntry(Entity):
    entity: Sequence[DescribeClientQuotasResponseEntity]
    values: Sequence[DescribeClientQuotasResponseValue]


class DescribeClientQuotasResponse(Entity):
    throttle_time_ms: int
    error_code: int
    error_message: str | None
    entries: Sequence[DescribeClientQuotasResponseEntry] | None


class DescribeClientQuotasAnswerEntity(TypedDict, total=False):
    entity_type: str
    entity_name: str | None


class DescribeClientQuotasAnswerValue(TypedDict, total=False):
    key: str
    value: float


class DescribeClientQuotasAnswerEntry(TypedDict, total=False):
    entity: Array[DescribeClientQuotasAnswerEntity]
    values: Array[DescribeClientQuotasAnswerValue]


class DescribeClientQuotasAnswer(Protocol):
    def __call__(
        self,
        *,
        throttle_time_ms: int = ...,
        error_code: int = ...,
        error_message: str | None = ...,
        entries: Array[DescribeClientQuotasAnswerEntry] | None = ...,
    ) -> None: ...


class DescribeClientQuotas(
    ApiTypes[
        DescribeClientQuotasRequest,
        DescribeClientQuotasAnswer,
        DescribeClientQuotasResponse,
    ]
):
    pass
