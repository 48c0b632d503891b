"""Wide requests in steps: one step in each turn of the loop, and the connections that have such work take turns.

Who asks for one thing is answered in one straight call. Who asks for ten thousand has its request read, handled and
answered in steps of a few milliseconds, and others are served in between. The next request of its own connection
waits until the steps are done, so that requests of one connection take effect in their order. What a request found may
be gone at its next step: a topic is looked up in the step that uses it.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Generator
from typing import Protocol

from cordwood.model.errors import SyncFailure
from cordwood.node.timers import Timers
from cordwood.wire.errors import AnswerTooLarge, BadRequest

logger = logging.getLogger("cordwood.node")

Steps = Generator[None, None, None]
"""Work that pauses where others may be served."""

ANSWERED_BYTES_PER_EVENT = 64 * 1024
"""A flush may answer hundreds of requests: from so many bytes on the rest is made in turns."""


class Waiting(Protocol):
    """The part of a reply that work in steps needs."""

    connection_id: int

    def hold(self) -> None: ...

    def release(self) -> None: ...

    def hang_up(self, reason: str) -> None: ...


class Turns:
    def __init__(self, timers: Timers, wake: Callable[[], None], now_ms: Callable[[], int]) -> None:
        """`now_ms` gives the time of the node's event at hand: all of one event has the same."""
        self._timers = timers
        self._wake = wake
        self._now_ms = now_ms
        self._work: dict[int, deque[tuple[Waiting, Steps]]] = {}
        """By connection, in the order in which they get their next turn."""
        self.stepped_for: object | None = None
        """Whose request the last step was for: whoever drives the node clears it before an event, and can then tell
        what a long one was for."""
        self._counted_from_ms = 0
        self.answered_bytes = 0
        """Since counting began: whoever sends an answer made from values adds its size."""

    def __len__(self) -> int:
        """How many connections have work under way."""
        return len(self._work)

    def begin(self, reply: Waiting, steps: Steps) -> None:
        """Takes the first step now, the others in later turns."""
        self.stepped_for = reply
        try:
            for _ in steps:
                self.add(reply, steps)
                return
        except (BadRequest, AnswerTooLarge) as reason:
            reply.hang_up(str(reason))

    def answered_much(self) -> bool:
        """Asked from ANSWERED_BYTES_PER_EVENT on: whether the next answer waits for a turn. Where another event has
        begun since the last time, counting begins anew instead."""
        now_ms = self._now_ms()
        if self._counted_from_ms == now_ms:
            return True
        self._counted_from_ms, self.answered_bytes = now_ms, 0
        return False

    def forget(self, connection_id: int) -> None:
        """The connection is closed: nobody waits for its answers."""
        for _, steps in self._work.pop(connection_id, ()):
            steps.close()

    def add(self, reply: Waiting, steps: Steps) -> None:
        """Takes all steps in later turns."""
        waiting = self._work.get(reply.connection_id)
        if waiting is not None:
            waiting.append((reply, steps))
            return
        if not self._work:
            self._call_at(self._now_ms())
        self._work[reply.connection_id] = deque([(reply, steps)])
        reply.hold()

    def _call_at(self, now_ms: int) -> None:
        # What comes to be due while deadlines are met waits for the next turn of the loop.
        self._timers.at(now_ms, self._turn)
        self._wake()

    def _turn(self, now_ms: int) -> None:
        if not self._work:
            return
        connection_id = next(iter(self._work))
        waiting = self._work[connection_id]
        reply, steps = waiting[0]
        try:
            done = self._taken(reply, steps)
        except (AssertionError, SyncFailure):
            raise
        except Exception as failure:
            logger.error("a request failed: %s", failure, exc_info=failure)
            reply.hang_up("the broker failed on its request")
            done = True
        if done:
            waiting.popleft()
        # Its next turn comes after those of the others.
        self._work.pop(connection_id, None)
        if waiting:
            self._work[connection_id] = waiting
        else:
            reply.release()
        if self._work:
            self._call_at(now_ms)

    def _taken(self, reply: Waiting, steps: Steps) -> bool:
        """Takes a step. True if it was the last."""
        self.stepped_for = reply
        try:
            next(steps)
        except StopIteration:
            return True
        except (BadRequest, AnswerTooLarge) as reason:
            reply.hang_up(str(reason))
            return True
        return False
