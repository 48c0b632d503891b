"""UnregisterBroker: forgets a broker that never comes back."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from cordwood.model.errors import ProtocolError
from cordwood.model.operations import Operation, ResourceKind
from cordwood.node.requests.outcomes import each_outcome, status
from cordwood.node.requests.request import Request, serves
from cordwood.wire.apis import ApiKey

if TYPE_CHECKING:
    from cordwood.node.loop.loop import Loop
    from cordwood.node.loop.reports import Reports
    from cordwood.wire.message_types.unregister_broker import UnregisterBroker


class UnregisteringRooms(Protocol):
    """The rooms of a node that this handler needs."""

    loop: Loop
    reports: Reports


def unregister_broker(rooms: UnregisteringRooms, request: Request[UnregisterBroker]) -> None:
    broker_id = request.decode().broker_id
    refusal = request.judge.refusal(Operation.ALTER, ResourceKind.CLUSTER)
    if refusal is not None:
        request.answer(**status(refusal))
        return

    def forgotten(result: Exception | None) -> None:
        outcomes: dict[int, Exception | None] | Exception = {broker_id: None}
        if result is not None:
            outcomes = {broker_id: result} if isinstance(result, ProtocolError) else result
        ((_, outcome),) = each_outcome(rooms.reports, outcomes, [broker_id])
        request.answer(**status(outcome))

    rooms.loop.effects.metadata(lambda writer: writer.forget_broker(broker_id), forgotten)


HANDLERS = (serves(ApiKey.UNREGISTER_BROKER, 0, 0, unregister_broker),)
