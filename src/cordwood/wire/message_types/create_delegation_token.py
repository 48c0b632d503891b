"""Generated from `messages/CreateDelegationToken.txt` by `make types`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from cordwood.wire.api_types import ApiTypes
from cordwood.wire.encoding.schema import Entity


class CreateDelegationToken(
    ApiTypes[
        "CreateDelegationToken.Request",
        "CreateDelegationToken.Answer",
        "CreateDelegationToken.Response",
    ]
):
    class RequestRenewer(Entity):
        principal_type: str
        principal_name: str

    class Request(Entity):
        owner_principal_type: str | None
        owner_principal_name: str | None
        renewers: Sequence[CreateDelegationToken.RequestRenewer]
        max_lifetime_ms: int

    class Response(Entity):
        error_code: int
        principal_type: str
        principal_name: str
        token_requester_principal_type: str
        token_requester_principal_name: str
        issue_timestamp_ms: int
        expiry_timestamp_ms: int
        max_timestamp_ms: int
        token_id: str
        hmac: bytes
        throttle_time_ms: int

    class Answer(Protocol):
        def __call__(
            self,
            *,
            error_code: int = ...,
            principal_type: str = ...,
            principal_name: str = ...,
            token_requester_principal_type: str = ...,
            token_requester_principal_name: str = ...,
            issue_timestamp_ms: int = ...,
            expiry_timestamp_ms: int = ...,
            max_timestamp_ms: int = ...,
            token_id: str = ...,
            hmac: bytes = ...,
            throttle_time_ms: int = ...,
        ) -> None: ...
