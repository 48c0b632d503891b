"""Checks of what clients prove themselves with: passwords that are sent as they are (PLAIN), and signatures of tokens.
A check takes up to some milliseconds, in the threads for clients' work.

Strangers can ask for checks. A few run at a time, so that other work of clients goes on; hosts take turns, so that one
host's guesses hold up no other host; and a host has a bound on the checks that wait.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any, Final, NamedTuple, TypeVar

from cordwood.node.loop.loop import Loop

T = TypeVar("T")

MOST_AT_ONCE: Final = 2
MOST_WAITING_OF_A_HOST: Final = 1000
"""Beyond a thousand programs behind one address that start together, connections are closed."""


class _Check(NamedTuple):
    connection_id: int
    work: Callable[[], Any]
    done: Callable[[Any], None]


class ProofChecks:
    def __init__(self, loop: Loop) -> None:
        self._loop = loop
        self._waiting: dict[str, deque[_Check]] = {}
        """Waiting checks by host; the host whose turn is next stands first."""
        self._running = 0

    def has_room(self, host: str) -> bool:
        return len(self._waiting.get(host, ())) < MOST_WAITING_OF_A_HOST

    def check(
        self, connection_id: int, host: str, work: Callable[[], T], done: Callable[[T | Exception], None]
    ) -> None:
        """Does the work in a thread. `done` gets its result, unless the connection is closed before the work begins."""
        self._waiting.setdefault(host, deque()).append(_Check(connection_id, work, done))
        self._begin()

    def connection_closed(self, connection_id: int, host: str) -> None:
        """Drops the waiting check of a closed connection."""
        line = self._waiting.pop(host, None)
        if line is not None and (left := deque(each for each in line if each.connection_id != connection_id)):
            self._waiting[host] = left

    def _begin(self) -> None:
        while self._running < MOST_AT_ONCE and self._waiting:
            host = next(iter(self._waiting))
            line = self._waiting.pop(host)
            check = line.popleft()
            if line:
                self._waiting[host] = line
            self._running += 1
            self._loop.effects.for_client(check.connection_id, check.work, self._ended(check))

    def _ended(self, check: _Check) -> Callable[[Any], None]:
        def ended(result: Any) -> None:
            self._running -= 1
            check.done(result)
            self._begin()

        return ended
