"""Generated from `messages/AlterClientQuotas.txt` by `make types`."""

from collections.abc import Sequence
from typing import Protocol, TypedDict

from cordwood.wire.api_types import ApiTypes, Array
from cordwood.wire.schema import Entity


class AlterClientQuotasRequestEntity(Entity):
    entity_type: str
    entity_name: str | None


class AlterClientQuotasRequestOp(Entity):
    key: str
    value: float
    remove: bool


class AlterClientQuotasRequestEntry(Entity):
    entity: Sequence[AlterClientQuotasRequestEntity]
    ops: Sequence[AlterClientQuotasRequestOp]


class AlterClientQuotasRequest(Entity):
    entries: Sequence[AlterClientQuotasRequestEntry]
    validate_only: bool


class AlterClientQuotasResponseEntity(Entity):
    entity_type: str
    entity_name: str | None


class AlterClientQuotasResponseEntry(Entity):
    error_code: int
    error_message: str | None
    entity: Sequence[AlterClientQuotasResponseEntity]


class AlterClientQuotasResponse(Entity):
    throttle_time_ms: int
    entries: Sequence[AlterClientQuotasResponseEntry]


class AlterClientQuotasAnswerEntity(TypedDict, total=False):
    entity_type: str
    entity_name: str | None


class AlterClientQuotasAnswerEntry(TypedDict, total=False):
    error_code: int
    error_message: str | None
    entity: Array[AlterClientQuotasAnswerEntity]


class AlterClientQuotasAnswer(Protocol):
    def __call__(
        self,
        *,
        throttle_time_ms: int = ...,
        entries: Array[AlterClientQuotasAnswerEntry] = ...,
    ) -> None: ...


class AlterClientQuotas(
    ApiTypes[
        AlterClientQuotasRequest,
        AlterClientQuotasAnswer,
        AlterClientQuotasResponse,
    ]
):
    pass
