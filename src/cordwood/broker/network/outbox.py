"""The connections with answers to send: answers that become ready together leave together.

One event (bytes on a socket, a flush round, a timer) can answer many requests of many connections. While the event is
handled the outbox is corked: connections only note that they have answers. At the end of the event each connection
writes once.
"""

import asyncio
from typing import Protocol


class Pumped(Protocol):
    def pump(self) -> None:
        """Writes the ready answers. Never answers a request and never raises."""


class Outbox:
    """Belongs to one loop. `cork` and `uncork` come in pairs and may be nested."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._corks = 0
        self._ready: list[Pumped] = []
        self._scheduled = False

    def cork(self) -> None:
        self._corks += 1

    def uncork(self) -> None:
        self._corks -= 1
        if self._corks == 0 and self._ready:
            self._write()

    def has_ready(self, connection: Pumped) -> None:
        """Notes that the connection has answers to send. Called once until the connection is pumped."""
        self._ready.append(connection)
        if self._corks == 0 and not self._scheduled:
            self._scheduled = True
            self._loop.call_soon(self._write_later)

    def _write_later(self) -> None:
        self._scheduled = False
        self._write()

    def _write(self) -> None:
        ready, self._ready = self._ready, []
        for connection in ready:
            connection.pump()
