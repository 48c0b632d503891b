"""Requests of brokers that know more than this one: they wait until this broker's image has caught up.

A broker says in each request which revision of the metadata it knew. Without the wait a broker that lags behind would
answer about a topic or a leadership that it does not know yet. The wait is bounded: after PATIENCE_MS the request is
handled with the image at hand, and later requests of its connection do not wait for that revision again. A revision may
never come: brokers of earlier releases name the revision of a listing, which counts changes of other users of the
store. A vain wait of one connection says nothing about the others: a client may name any revision.

A request that carries the key of a broker waits in any case. The sender of a request without a key may be a client, or
a broker whose registration this one does not know yet: only a few such requests wait at a time.

A request that waits holds its connection, so at most one of each connection waits, and requests of one connection take
effect in their order.
"""

from __future__ import annotations

from typing import NamedTuple

from cordwood.cluster.metadata.image import ClusterImage
from cordwood.model.moment import Moment
from cordwood.node.loop.loop import Loop
from cordwood.node.loop.ports import Reply
from cordwood.node.loop.timers import Timer
from cordwood.node.loop.turns import Steps
from cordwood.node.requests.proven_brokers import is_proven, may_be_keyless
from cordwood.wire.requests import RequestHeader

PATIENCE_MS = 2_000
MOST_STRANGERS = 1_000
MOST_BYTES_OF_STRANGERS = 4 * 1024 * 1024


class _Waiting(NamedTuple):
    revision: int
    reply: Reply
    steps: Steps
    timer: Timer
    stranger_bytes: int
    """The size of a request that does not prove its sender; 0 for one that does."""


class CatchingUp:
    def __init__(self, loop: Loop, image: ClusterImage) -> None:
        self._loop = loop
        self._image = image
        self._waiting: dict[int, _Waiting] = {}
        """The waiting request of each connection."""
        self._given_up: dict[int, int] = {}
        """The highest revision that a request has waited for in vain, by connection."""
        self._strangers = 0
        self._strangers_bytes = 0

    def __len__(self) -> int:
        return len(self._waiting)

    def has_room(self, header: RequestHeader, reply: Reply, size: int) -> bool:
        """True if a request of this size that names a revision beyond the image's waits for it."""
        if header.image_revision <= self._given_up.get(reply.connection_id, 0):
            return False
        if is_proven(self._image, header):
            return True
        return (
            reply.session.entrance.between_brokers
            and (header.sender is not None or may_be_keyless(self._image))
            and self._strangers < MOST_STRANGERS
            and self._strangers_bytes + size <= MOST_BYTES_OF_STRANGERS
        )

    def wait(self, header: RequestHeader, reply: Reply, size: int, steps: Steps) -> None:
        """Takes the steps, in turns, when the image has reached the request's revision, or after PATIENCE_MS."""
        connection_id, revision = reply.connection_id, header.image_revision
        assert connection_id not in self._waiting, "a held connection brought a request"

        def in_vain(now: Moment) -> None:
            self._given_up[connection_id] = revision
            self._go_on(connection_id)

        reply.hold()
        timer = self._loop.after(PATIENCE_MS, in_vain)
        waiting = _Waiting(revision, reply, steps, timer, 0 if is_proven(self._image, header) else size)
        self._waiting[connection_id] = waiting
        self._count(waiting, 1)

    def _count(self, waiting: _Waiting, more: int) -> None:
        if waiting.stranger_bytes:
            self._strangers += more
            self._strangers_bytes += more * waiting.stranger_bytes

    def image_moved(self) -> None:
        """Goes on with the requests whose revision the image has reached."""
        if self._waiting:
            reached = self._image.revision
            for connection_id in [each for each, waiting in self._waiting.items() if waiting.revision <= reached]:
                self._go_on(connection_id)

    def stop_waiting(self) -> None:
        for connection_id in list(self._waiting):
            self._go_on(connection_id)

    def connection_closed(self, connection_id: int) -> None:
        self._given_up.pop(connection_id, None)
        waiting = self._waiting.pop(connection_id, None)
        if waiting is not None:
            self._count(waiting, -1)
            waiting.timer.cancel()
            waiting.steps.close()

    def _go_on(self, connection_id: int) -> None:
        waiting = self._waiting.pop(connection_id)
        self._count(waiting, -1)
        waiting.timer.cancel()
        self._loop.turns.add(waiting.reply, waiting.steps)
        waiting.reply.release()
