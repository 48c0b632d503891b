"""Produce: appends each batch, and answers as soon as all batches are as safe as their acks ask for.

The hot path is one pass: decode, append, encode. State is kept only where an ack has to wait, where the coordinator of
a transaction has to be asked first, and where batches need work before they are appended. A request of many batches is
appended in steps (`wide_produce`): the order of batches within a partition is kept.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cordwood.node.handlers.records.appending import BatchRefusals, append_all, refusal_of
from cordwood.node.handlers.records.batches import (
    Verified,
    brought_zstd,
    kept_batches,
    ready_at_once,
    take_over,
    unverified,
    verify,
    with_partitions,
)
from cordwood.node.handlers.records.wide_produce import BATCHES_PER_STEP, produce_in_steps
from cordwood.node.loop.turns import Steps
from cordwood.node.partitions.preparation import Outcome
from cordwood.node.requests.request import Request, serves
from cordwood.wire.apis import ApiKey
from cordwood.wire.encoding.bad_messages import TooManyElements
from cordwood.wire.produce import ProduceRequest, decode_produce

if TYPE_CHECKING:
    from cordwood.node.handlers.records.wide_produce import ProduceRooms


def produce(rooms: ProduceRooms, request: Request) -> Steps | None:
    try:
        body = decode_produce(request.header, request.frame, BATCHES_PER_STEP)
    except TooManyElements:
        return produce_in_steps(rooms, request)
    if rooms.preparation.may_concern(body.topics) and _produce_prepared(rooms, request, body):
        return None
    if body.transactional_id is not None:
        _produce_in_transaction(rooms, request, body, body.transactional_id, None)
    else:
        append_all(rooms, request, body, None, None)
    return None


def _produce_prepared(rooms: ProduceRooms, request: Request, body: ProduceRequest) -> bool:
    """Appends the batches once they are prepared. False if the caller can append them at once."""
    preparation, connection_id = rooms.preparation, request.reply.connection_id
    if ready_at_once(rooms, connection_id, body, with_partitions(rooms, body)):
        return False
    kept = kept_batches(body)
    request.let_go_of_frame()
    found = with_partitions(rooms, kept)
    refused = brought_zstd(request, kept)

    def go(outcome: list[Outcome]) -> None:
        take_over(kept, found, outcome, refused)
        request.now = rooms.loop.now
        if body.transactional_id is not None:
            _produce_in_transaction(rooms, request, kept, body.transactional_id, refused)
        else:
            append_all(rooms, request, kept, None, refused)

    preparation.in_turn(connection_id, [(partition, records) for _, partition, records in found], go)
    return True


def _produce_in_transaction(
    rooms: ProduceRooms, request: Request, body: ProduceRequest, transactional_id: str, prepared: BatchRefusals | None
) -> None:
    """Appends to partitions that are part of the transaction already; asks the coordinator about the others."""
    appends = rooms.transactional_appends
    if refusal_of(body) is not None or (not appends.busy(transactional_id) and not unverified(rooms, body)):
        append_all(rooms, request, body, {}, prepared)
        return
    kept = kept_batches(body) if prepared is None else body

    def start(verified: Verified) -> None:
        request.now = rooms.loop.now
        append_all(rooms, request, kept, verified(), prepared)
        appends.through(transactional_id)

    verify(rooms, request, kept, transactional_id, start)


HANDLERS = (serves(ApiKey.PRODUCE, 3, 13, produce),)
