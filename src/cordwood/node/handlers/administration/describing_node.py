"""DescribeNode, an API of our own: the release that this broker runs, the clients that use it, and the
brokers that it cannot speak with."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

from cordwood.model.errors import ErrorCode
from cordwood.model.operations import Operation, ResourceKind
from cordwood.node.requests.request import Request, serves
from cordwood.wire.apis import ApiKey

if TYPE_CHECKING:
    from cordwood.node.requests.census import Census
    from cordwood.wire.message_types.describe_node import DescribeNode

MOST_CLIENTS: Final = 1_000
"""The most clients in one answer: encoding it takes some milliseconds of the loop."""


class DescribingRooms(Protocol):
    """The rooms of a node that this handler needs."""

    census: Census


def describe_node(rooms: DescribingRooms, request: Request[DescribeNode]) -> None:
    refusal = request.judge.error(Operation.DESCRIBE, ResourceKind.CLUSTER)
    if refusal is not ErrorCode.NONE:
        request.answer(error_code=refusal)
        return
    most = min(max(request.decode().most_clients, 0), MOST_CLIENTS)
    census = rooms.census
    request.answer(
        error_code=ErrorCode.NONE,
        version=census.version,
        commit=census.commit,
        clients=[
            {
                "client_id": each.client_id,
                "host": each.host,
                "connections": each.connections,
                "accepted": each.accepted,
                "requests": each.requests,
                "request_bytes": each.request_bytes,
            }
            for each in census.clients(most)
        ],
        unreached=[{"broker_id": each.broker_id, "reason": each.reason} for each in census.unreached()],
    )


HANDLERS = (serves(ApiKey.DESCRIBE_NODE, 0, 0, describe_node),)
