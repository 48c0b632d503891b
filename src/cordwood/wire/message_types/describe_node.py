"""Generated from `messages/DescribeNode.txt` by `make types`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, TypedDict

from cordwood.wire.api_types import ApiTypes, Array
from cordwood.wire.encoding.schema import Entity


class DescribeNode(
    ApiTypes[
        "DescribeNode.Request",
        "DescribeNode.Answer",
        "DescribeNode.Response",
    ]
):
    class Request(Entity):
        most_clients: int

    class ResponseClient(Entity):
        client_id: str
        host: str
        connections: int
        accepted: int
        requests: int
        request_bytes: int

    class ResponseUnreached(Entity):
        broker_id: int
        reason: str

    class Response(Entity):
        throttle_time_ms: int
        error_code: int
        version: str
        commit: str
        clients: Sequence[DescribeNode.ResponseClient]
        unreached: Sequence[DescribeNode.ResponseUnreached]

    class AnswerClient(TypedDict, total=False):
        client_id: str
        host: str
        connections: int
        accepted: int
        requests: int
        request_bytes: int

    class AnswerUnreached(TypedDict, total=False):
        broker_id: int
        reason: str

    class Answer(Protocol):
        def __call__(
            self,
            *,
            throttle_time_ms: int = ...,
            error_code: int = ...,
            version: str = ...,
            commit: str = ...,
            clients: Array[DescribeNode.AnswerClient] = ...,
            unreached: Array[DescribeNode.AnswerUnreached] = ...,
        ) -> None: ...
