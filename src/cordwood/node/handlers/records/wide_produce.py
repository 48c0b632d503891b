"""Handles a Produce request of many batches: decodes it in one turn and appends it piece by piece in others.

A piece that waits for the preparation of its batches, or for its transaction's coordinator, holds up no other piece. A
transaction may end between two pieces: the coordinator is asked about each.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Protocol

from cordwood.model.moment import Moment
from cordwood.node.handlers.records.appending import (
    AppendingRooms,
    Refusals,
    Results,
    WaitingProduce,
    append,
    end,
    refusal_of,
)
from cordwood.node.handlers.records.batches import (
    BatchRooms,
    Found,
    Verified,
    brought_zstd,
    ready_at_once,
    take_over,
    verify,
    with_partitions,
)
from cordwood.node.loop.turns import Steps
from cordwood.node.partitions.preparation import Outcome
from cordwood.node.requests.request import Request
from cordwood.wire.produce import ProduceRequest, ProduceTopic, decode_produce

if TYPE_CHECKING:
    from cordwood.node.loop.loop import Loop


BATCHES_PER_STEP = 50
"""A batch takes some ten microseconds, and a few hundred if its partition's files have to be made."""


class ProduceRooms(AppendingRooms, BatchRooms, Protocol):
    """The rooms of a node that these handlers need."""

    loop: Loop


def produce_in_steps(rooms: ProduceRooms, request: Request) -> Steps:
    # The network's buffer is lent until the first pause.
    frame = memoryview(bytearray(request.frame))
    request.let_go_of_frame()
    yield
    body = decode_produce(request.header, frame)
    yield
    yield from WideProduce(rooms, request, body).steps()


class WideProduce:
    """Answers when every piece is appended, and each batch as safe as its acks ask for."""

    def __init__(self, rooms: ProduceRooms, request: Request, body: ProduceRequest) -> None:
        self._rooms = rooms
        self._request = request
        self._body = body
        self._refusal = refusal_of(body)
        self._unprepared = brought_zstd(request, body)
        self._results: Results = []
        self._waiting: WaitingProduce | None = None
        self._outstanding = 1  # the steps themselves, until they have begun every piece

    def steps(self) -> Steps:
        for piece in _pieces(self._body):
            self._outstanding += 1
            self._begin(piece)
            yield
        self._one_less()

    def _begin(self, piece: ProduceRequest) -> None:
        rooms, connection_id = self._rooms, self._request.reply.connection_id
        if self._refusal is not None:
            self._append(piece, None)
            return
        if rooms.preparation.may_concern(piece.topics):
            found = with_partitions(rooms, piece)
            if not ready_at_once(rooms, connection_id, piece, found):
                batches = [(partition, records) for _, partition, records in found]
                rooms.preparation.in_turn(connection_id, batches, partial(self._prepared, piece, found))
                return
        self._go_on(piece)

    def _prepared(self, piece: ProduceRequest, found: list[Found], outcome: list[Outcome]) -> None:
        take_over(piece, found, outcome, self._unprepared)
        self._go_on(piece)

    def _go_on(self, piece: ProduceRequest) -> None:
        rooms, transactional_id = self._rooms, self._body.transactional_id
        if transactional_id is None:
            self._append(piece, None)
            return

        def go(verified: Verified, now: Moment) -> None:
            self._append(piece, verified())
            rooms.transactional_appends.through(transactional_id)

        # One piece in a turn, even if the coordinator need not be asked.
        verify(
            rooms,
            self._request,
            piece,
            transactional_id,
            lambda verified: rooms.loop.in_turns.add(partial(go, verified)),
        )

    def _append(self, piece: ProduceRequest, refused: Refusals | None) -> None:
        rooms, request = self._rooms, self._request
        request.now = rooms.loop.now
        self._waiting = append(
            rooms,
            request,
            self._body,
            piece.topics,
            self._results,
            self._waiting,
            self._refusal,
            refused,
            self._unprepared,
        )
        self._one_less()

    def _one_less(self) -> None:
        self._outstanding -= 1
        if not self._outstanding:
            end(self._rooms, self._request, self._body, self._results, self._waiting)


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
