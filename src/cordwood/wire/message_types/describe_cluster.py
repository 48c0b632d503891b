"""Generated from `messages/DescribeCluster.txt` by `make types`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, TypedDict

from cordwood.wire.api_types import ApiTypes, Array
from cordwood.wire.encoding.schema import Entity


class DescribeCluster(
    ApiTypes[
        "DescribeCluster.Request",
        "DescribeCluster.Answer",
        "DescribeCluster.Response",
    ]
):
    class Request(Entity):
        include_cluster_authorized_operations: bool
        endpoint_type: int
        include_fenced_brokers: bool

    class ResponseBroker(Entity):
        broker_id: int
        host: str
        port: int
        rack: str | None
        is_fenced: bool
        is_draining: bool
        is_starting: bool
        is_disk_full: bool
        is_cordoned: bool
        is_away: bool
        withheld: Sequence[str]

    class Response(Entity):
        throttle_time_ms: int
        error_code: int
        error_message: str | None
        endpoint_type: int
        cluster_id: str
        controller_id: int
        brokers: Sequence[DescribeCluster.ResponseBroker]
        cluster_authorized_operations: int

    class AnswerBroker(TypedDict, total=False):
        broker_id: int
        host: str
        port: int
        rack: str | None
        is_fenced: bool
        is_draining: bool
        is_starting: bool
        is_disk_full: bool
        is_cordoned: bool
        is_away: bool
        withheld: Array[str]

    class Answer(Protocol):
        def __call__(
            self,
            *,
            throttle_time_ms: int = ...,
            error_code: int = ...,
            error_message: str | None = ...,
            endpoint_type: int = ...,
            cluster_id: str = ...,
            controller_id: int = ...,
            brokers: Array[DescribeCluster.AnswerBroker] = ...,
            cluster_authorized_operations: int = ...,
        ) -> None: ...
