"""Requests of brokers that know more than this one: they wait until this broker's image has caught up.

A broker says in each request which revision of the metadata it knew. Without the wait a broker that lags behind would
answer about a topic or a leadership of which it has not heard yet. The wait is bounded: after PATIENCE_MS the request
is handled with the image at hand, and later requests do not wait for that revision again. A revision may never come:
brokers of earlier releases name the revision of a listing, which counts changes of other users of the store.

A request that waits holds its connection, so at most one of each connection waits, and requests of one connection take
effect in their order.
"""

from __future__ import annotations

from typing import NamedTuple

from cordwood.cluster.image import ClusterImage
from cordwood.model.moment import Moment
from cordwood.node.loop import Loop
from cordwood.node.ports import Reply
from cordwood.node.timers import Timer
from cordwood.node.turns import Steps
from cordwood.wire.requests import RequestHeader

PATIENCE_MS = 2_000
MOST_WAITING = 1_000


class _Waiting(NamedTuple):
    revision: int
    reply: Reply
    steps: Steps
    timer: Timer


class CatchingUp:
    def __init__(self, loop: Loop, image: ClusterImage) -> None:
        self._loop = loop
        self._image = image
        self._waiting: dict[int, _Waiting] = {}
        """The waiting request of each connection."""
        self._given_up = 0
        """The highest revision that a request has waited for in vain."""

    def __len__(self) -> int:
        return len(self._waiting)

    def has_room(self, header: RequestHeader, reply: Reply) -> bool:
        """Whether a request that names a revision beyond the image's waits for it."""
        return (
            header.image_revision > self._given_up
            and reply.entrance.between_brokers
            and len(self._waiting) < MOST_WAITING
        )

    def wait(self, header: RequestHeader, reply: Reply, steps: Steps) -> None:
        """Takes the steps, in turns, when the image has reached the request's revision, or after PATIENCE_MS."""
        connection_id, revision = reply.connection_id, header.image_revision
        assert connection_id not in self._waiting, "a held connection brought a request"

        def in_vain(now: Moment) -> None:
            self._given_up = max(self._given_up, revision)
            self._go_on(connection_id)

        reply.hold()
        self._waiting[connection_id] = _Waiting(revision, reply, steps, self._loop.after(PATIENCE_MS, in_vain))

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
        waiting = self._waiting.pop(connection_id, None)
        if waiting is not None:
            waiting.timer.cancel()
            waiting.steps.close()

    def _go_on(self, connection_id: int) -> None:
        waiting = self._waiting.pop(connection_id)
        waiting.timer.cancel()
        self._loop.turns.add(waiting.reply, waiting.steps)
        waiting.reply.release()
