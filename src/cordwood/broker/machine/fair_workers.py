"""Threads for the work of clients' requests, shared fairly: no connection has all threads, and connections take turns.

The broker's own work (checkpoints, loading of coordinators) has other threads: clients cannot delay it.
"""

from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any, Protocol, TypeVar

T = TypeVar("T")

Work = Callable[[], Any]
Done = Callable[[Any], None]


class Threads(Protocol):
    def submit(self, work: Work, done: Done) -> None: ...


class FairWorkers:
    """Hands work to `count` threads, at most `share` of them to one connection; connections take turns.

    Everything but the work itself happens in the loop's thread.
    """

    def __init__(self, threads: Threads, count: int, share: int) -> None:
        assert 0 < share <= count
        self._threads = threads
        self._count = count
        self._share = share
        self._waiting: dict[int, deque[tuple[Work, Done]]] = {}
        """Waiting work by connection; the connection whose turn is next stands first."""
        self._working: dict[int, int] = {}
        """The number of busy threads of each connection."""
        self._busy = 0

    def submit(self, connection_id: int, work: Callable[[], T], done: Callable[[T | Exception], None]) -> None:
        """Does the work in a thread; `done` gets its result, or the exception it raised, in the loop."""
        self._waiting.setdefault(connection_id, deque()).append((work, done))
        self._start()

    def _start(self) -> None:
        while self._busy < self._count:
            # At most count / share connections use their whole share, so few are passed over.
            connection_id = next((each for each in self._waiting if self._working.get(each, 0) < self._share), None)
            if connection_id is None:
                return
            line = self._waiting.pop(connection_id)
            work, done = line.popleft()
            if line:
                self._waiting[connection_id] = line
            self._busy += 1
            self._working[connection_id] = self._working.get(connection_id, 0) + 1
            self._threads.submit(work, partial(self._finished, connection_id, done))

    def _finished(self, connection_id: int, done: Done, result: Any) -> None:
        self._busy -= 1
        left = self._working.pop(connection_id) - 1
        if left:
            self._working[connection_id] = left
        self._start()
        done(result)
