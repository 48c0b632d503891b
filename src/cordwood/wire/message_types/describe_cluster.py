"""Generated from `messages/DescribeCluster.txt` by `make types`."""

from collections.abc import Sequence
from typing import Protocol, TypedDict

from cordwood.wire.api_types import ApiTypes, Array
from cordwood.wire.schema import Entity


class DescribeClusterRequest(Entity):
    include_cluster_authorized_operations: bool
    endpoint_type: int
    include_fenced_brokers: bool


class DescribeClusterResponseBroker(Entity):
    broker_id: int
    host: str
    port: int
    rack: str | None
    is_fenced: bool


class DescribeClusterResponse(Entity):
    throttle_time_ms: int
    error_code: int
    error_message: str | None
    endpoint_type: int
    cluster_id: str
    controller_id: int
    brokers: Sequence[DescribeClusterResponseBroker]
    cluster_authorized_operations: int


class DescribeClusterAnswerBroker(TypedDict, total=False):
    broker_id: int
    host: str
    port: int
    rack: str | None
    is_fenced: bool


class DescribeClusterAnswer(Protocol):
    def __call__(
        self,
        *,
        throttle_time_ms: int = ...,
        error_code: int = ...,
        error_message: str | None = ...,
        endpoint_type: int = ...,
        cluster_id: str = ...,
        controller_id: int = ...,
        brokers: Array[DescribeClusterAnswerBroker] = ...,
        cluster_authorized_operations: int = ...,
    ) -> None: ...


class DescribeCluster(
    ApiTypes[
        DescribeClusterRequest,
        DescribeClusterAnswer,
        DescribeClusterResponse,
    ]
):
    pass
