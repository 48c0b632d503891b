"""Handles wide requests in steps: one step in each turn of the loop, and connections with such requests take turns.

A request for one thing is answered in one straight call. A request for ten thousand things is decoded, handled and
answered in steps of a few milliseconds, and other connections are served in between. The next request of the same
connection waits until the steps are done, so that requests of one connection take effect in their order. A topic may be
deleted between two steps: a topic is looked up in the step that uses it.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Generator
from typing import Protocol

from cordwood.model.errors import SyncFailure
from cordwood.model.moment import Moment
from cordwood.node.loop.timers import Timers
from cordwood.wire.encoding.bad_messages import AnswerTooLarge, BadRequest

logger = logging.getLogger("cordwood.node")

Steps = Generator[None, None, None]
"""Work that pauses where other requests may be served."""

ANSWERED_BYTES_PER_EVENT = 64 * 1024
"""A flush may answer hundreds of requests: answers beyond this many bytes are made in turns."""


MADE_AT_ONCE_BYTES = 64 * 1024 * 1024
"""Bytes of answers that are being made in steps: beyond this many the oldest of them is finished first. An answer may
have 100 MB, and a thousand connections may ask for one each."""


class Waiting(Protocol):
    """The part of a reply that work in steps needs."""

    connection_id: int

    def hold(self) -> None: ...

    def release(self) -> None: ...

    def hang_up(self, reason: str) -> None: ...


class Turns:
    def __init__(self, timers: Timers, wake: Callable[[], None], now: Callable[[], Moment]) -> None:
        """`now` gives the time of the node's current event, which does not change within the event."""
        self._timers = timers
        self._wake = wake
        self._now = now
        self._work: dict[int, deque[tuple[Waiting, Steps]]] = {}
        """Work by connection, in the order of the connections' next turns."""
        self.stepped_for: object | None = None
        """The reply of the last request or step. The driver clears it before each event, to name the client that held
        the loop."""
        self._counted_from: Moment | None = None
        self.answered_bytes = 0
        """Bytes of answers in the current event: senders of answers add their sizes."""
        self._making: dict[int, int] = {}
        """Bytes so far of answers that are being made, by connection, the oldest first."""
        self._made_bytes = 0

    def __len__(self) -> int:
        """The number of connections with work under way."""
        return len(self._work)

    def begin(self, reply: Waiting, steps: Steps) -> None:
        """Takes the first step now, the other steps in later turns."""
        self.stepped_for = reply
        try:
            for _ in steps:
                self.add(reply, steps)
                return
        except (BadRequest, AnswerTooLarge) as reason:
            reply.hang_up(str(reason))

    def answered_much(self) -> bool:
        """True if the next answer waits for a turn: this event has answered ANSWERED_BYTES_PER_EVENT. In a new event
        counting begins anew."""
        now = self._now()
        if self._counted_from is now:
            return True
        self._counted_from, self.answered_bytes = now, 0
        return False

    @property
    def made_enough(self) -> bool:
        """True if answers that are being made have so many bytes that further ones wait."""
        return self._made_bytes > MADE_AT_ONCE_BYTES

    def makes(self, connection_id: int, so_far: int) -> None:
        """Notes the bytes so far of the answer that is being made for a connection."""
        self._made_bytes += so_far - self._making.get(connection_id, 0)
        self._making[connection_id] = so_far

    def made(self, connection_id: int) -> None:
        """Notes that the answer is finished, or given up."""
        self._made_bytes -= self._making.pop(connection_id, 0)

    def forget(self, connection_id: int) -> None:
        """Drops the work of a closed connection: its answers would not be read."""
        for _, steps in self._work.pop(connection_id, ()):
            steps.close()

    def add(self, reply: Waiting, steps: Steps) -> None:
        """Takes all steps in later turns."""
        waiting = self._work.get(reply.connection_id)
        if waiting is not None:
            waiting.append((reply, steps))
            return
        if not self._work:
            self._call_at(self._now())
        self._work[reply.connection_id] = deque([(reply, steps)])
        reply.hold()

    def _call_at(self, now: Moment) -> None:
        # A timer that becomes due while timers run waits for the next turn of the loop.
        self._timers.at(now.boot_ms, self._turn)
        self._wake()

    def _turn(self, now: Moment) -> None:
        if not self._work:
            return
        connection_id = self._next_connection()
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
        # The connection's next turn comes after those of the other connections.
        self._work.pop(connection_id, None)
        if waiting:
            self._work[connection_id] = waiting
        else:
            reply.release()
        if self._work:
            self._call_at(now)

    def _next_connection(self) -> int:
        """The connection whose turn it is. While there are too many bytes of answers, all but the oldest wait."""
        if not self.made_enough:
            return next(iter(self._work))
        oldest = next(iter(self._making))
        return next((each for each in self._work if each == oldest or each not in self._making), oldest)

    def _taken(self, reply: Waiting, steps: Steps) -> bool:
        """Takes a step. True if the step was the last."""
        self.stepped_for = reply
        try:
            next(steps)
        except StopIteration:
            return True
        except (BadRequest, AnswerTooLarge) as reason:
            reply.hang_up(str(reason))
            return True
        return False
