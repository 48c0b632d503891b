"""Threads for work that clients cause, shared fairly: no client has all threads, and clients take turns.

A client is a connection whose requests ask for work, or an address whose handshakes do. The broker's own work
(checkpoints, loading of coordinators) has other threads: clients cannot delay it.
"""

from collections import deque
from collections.abc import Callable, Hashable
from functools import partial
from typing import Any, Protocol, TypeVar

T = TypeVar("T")

Work = Callable[[], Any]
Done = Callable[[Any], None]


class Threads(Protocol):
    def submit(self, work: Work, done: Done) -> None: ...

    def close(self) -> None: ...


class FairWorkers:
    """Hands work to `count` threads, at most `share` of them to one client; clients take turns.

    Everything but the work itself happens in the loop's thread.
    """

    def __init__(self, threads: Threads, count: int, share: int) -> None:
        assert 0 < share <= count
        self._threads = threads
        self._count = count
        self._share = share
        self._waiting: dict[Hashable, deque[tuple[Work, Done]]] = {}
        """Waiting work by client; the client whose turn is next stands first."""
        self._working: dict[Hashable, int] = {}
        """The number of busy threads of each client."""
        self._busy = 0
        self._closed = False

    @property
    def waiting(self) -> int:
        """The number of clients whose work waits for a thread."""
        return len(self._waiting)

    def submit(self, client: Hashable, work: Callable[[], T], done: Callable[[T | Exception], None]) -> None:
        """Does the work in a thread; `done` gets its result, or the exception it raised, in the loop."""
        assert not self._closed, "the threads are closed"
        self._waiting.setdefault(client, deque()).append((work, done))
        self._start()

    def close(self) -> None:
        """Ends the threads after the work that they do; their results are delivered here. Work that waits is dropped:
        its clients' connections end."""
        self._closed = True
        self._waiting.clear()
        self._threads.close()

    def _start(self) -> None:
        while self._busy < self._count:
            # At most count / share clients use their whole share, so few are passed over.
            client = next((each for each in self._waiting if self._working.get(each, 0) < self._share), None)
            if client is None:
                return
            line = self._waiting.pop(client)
            work, done = line.popleft()
            if line:
                self._waiting[client] = line
            self._busy += 1
            self._working[client] = self._working.get(client, 0) + 1
            self._threads.submit(work, partial(self._finished, client, done))

    def _finished(self, client: Hashable, done: Done, result: Any) -> None:
        self._busy -= 1
        left = self._working.pop(client) - 1
        if left:
            self._working[client] = left
        self._start()
        done(result)
