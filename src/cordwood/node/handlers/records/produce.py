"""Produce: appends each batch, and answers as soon as all batches are as safe as their acks ask for.

A piece of a request goes one way: its batches are prepared, if their topics ask for it; its transaction's coordinator
is asked, if it has one; it is appended. A narrow request is one piece, and the hot path is one pass through its frame:
decode, append, encode. Batches are copied only where the piece waits.

A request of many batches is decoded in one turn, and its pieces are begun in others. A piece that waits holds up no
other piece, and the order of batches within a partition is kept. A transaction may end between two pieces: the
coordinator is asked about each.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Protocol

from cordwood.node.handlers.records.appending import Appending, AppendingRooms
from cordwood.node.handlers.records.batches import (
    BatchRooms,
    Found,
    Verified,
    brought_zstd,
    kept_batches,
    ready_at_once,
    take_over,
    unverified,
    verify,
    with_partitions,
)
from cordwood.node.loop.turns import Steps
from cordwood.node.partitions.preparation import Outcome
from cordwood.node.requests.request import Request, serves
from cordwood.wire.apis import ApiKey
from cordwood.wire.encoding.bad_messages import TooManyElements
from cordwood.wire.produce import ProduceRequest, ProduceTopic, decode_produce

if TYPE_CHECKING:
    from cordwood.model.moment import Moment
    from cordwood.node.loop.loop import Loop

BATCHES_PER_STEP = 50
"""A batch takes some ten microseconds, and a few hundred if its partition's files have to be made."""


class ProduceRooms(AppendingRooms, BatchRooms, Protocol):
    """The rooms of a node that these handlers need."""

    loop: Loop


def produce(rooms: ProduceRooms, request: Request) -> Steps | None:
    try:
        body = decode_produce(request.header, request.frame, BATCHES_PER_STEP)
    except TooManyElements:
        return _produce_in_steps(rooms, request)
    appending = Appending(rooms, request, body)
    if body.transactional_id is None and not rooms.preparation.may_concern(body.topics):
        appending.append(body.topics)
    else:
        _begin(rooms, appending, body)
    return None


def _produce_in_steps(rooms: ProduceRooms, request: Request) -> Steps:
    # The network's buffer is lent until the first pause.
    frame = memoryview(bytearray(request.frame))
    request.let_go_of_frame()
    yield
    body = decode_produce(request.header, frame)
    yield
    appending = Appending(rooms, request, body, wide=True)
    for piece in _pieces(body):
        appending.outstanding += 1
        _begin(rooms, appending, piece)
        yield
    appending.one_less()


def _begin(rooms: ProduceRooms, appending: Appending, piece: ProduceRequest) -> None:
    """Has the batches of a piece prepared, if need be."""
    piece = appending.allowed(piece)
    if appending.refusal is not None:
        appending.append(piece.topics)
        return
    if rooms.preparation.may_concern(piece.topics):
        connection_id = appending.request.reply.connection_id
        found = with_partitions(rooms, piece)
        if not ready_at_once(rooms, connection_id, piece, found):
            if not appending.wide:
                piece = _kept(appending.request, piece)
                found = with_partitions(rooms, piece)
            appending.refused_batches.update(brought_zstd(appending.request, piece))
            batches = [(partition, records) for _, partition, records in found]
            go = partial(_prepared, rooms, appending, piece, found)
            rooms.preparation.in_turn(connection_id, batches, go)
            return
    _ask_coordinator(rooms, appending, piece, prepared=False)


def _prepared(
    rooms: ProduceRooms, appending: Appending, piece: ProduceRequest, found: list[Found], outcome: list[Outcome]
) -> None:
    take_over(piece, found, outcome, appending.refused_batches)
    _ask_coordinator(rooms, appending, piece, prepared=True)


def _ask_coordinator(rooms: ProduceRooms, appending: Appending, piece: ProduceRequest, *, prepared: bool) -> None:
    """Appends to partitions that are part of the transaction already; asks the coordinator about the others."""
    appends, transactional_id, wide = rooms.transactional_appends, piece.transactional_id, appending.wide
    if transactional_id is None:
        appending.append(piece.topics, prepared=prepared)
        return
    if not wide and not appends.busy(transactional_id) and not unverified(rooms, piece):
        appending.append(piece.topics, {}, prepared=prepared)
        return
    kept = piece if wide or prepared else _kept(appending.request, piece)

    def go(verified: Verified, now: Moment) -> None:
        appending.append(kept.topics, verified(), prepared=prepared)
        appends.through(transactional_id)

    def start(verified: Verified) -> None:
        if wide:
            # One piece in a turn, even if the coordinator need not be asked.
            rooms.loop.in_turns.add(partial(go, verified))
        else:
            go(verified, rooms.loop.now)

    verify(rooms, appending.request, kept, transactional_id, start)


def _kept(request: Request, piece: ProduceRequest) -> ProduceRequest:
    """The piece with its own batches: the network's frame is gone when the handler returns."""
    kept = kept_batches(piece)
    request.let_go_of_frame()
    return kept


def _pieces(body: ProduceRequest) -> list[ProduceRequest]:
    """Splits a wide request into narrow ones."""
    pieces: list[list[ProduceTopic]] = [[]]
    room = BATCHES_PER_STEP
    for topic, batches in body.topics:
        for start in range(0, max(len(batches), 1), BATCHES_PER_STEP):
            some = batches[start : start + BATCHES_PER_STEP]
            if len(some) >= room:
                pieces.append([])
                room = BATCHES_PER_STEP
            pieces[-1].append((topic, some))
            room -= max(len(some), 1)
    return [body._replace(topics=topics) for topics in pieces if topics]


HANDLERS = (serves(ApiKey.PRODUCE, 3, 13, produce),)
