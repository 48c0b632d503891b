"""Wide requests: the bytes of those that are handled in steps at one time are bounded, and further ones wait.

A fetch of 16 bytes for each partition takes some 200 bytes for each while it is handled: 400 connections that each sent
one of 144 KB took 0.7 GB. Requests wait in three lines by size, first come, first served, so that a request waits
behind none that costs much more. One request of each line is let through, however large.

A request that waits holds its connection, so at most one of each connection waits. Requests of proven brokers do not
wait: followers that are late leave the in-sync set.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from cordwood.node.loop.ports import Reply
from cordwood.node.loop.turns import Steps, Turns
from cordwood.wire.widths import MAX_BYTES_WITHOUT_RECORDS

NARROW_BYTES: Final = 8 * 1024
"""Requests up to this size never wait."""
KIB: Final = 1024
LINES: Final = ((32 * KIB, 8192 * KIB), (512 * KIB, 8192 * KIB), (MAX_BYTES_WITHOUT_RECORDS, 16384 * KIB))
"""The longest request of each line, and the bytes of those that are handled at one time."""


class _Waiting(NamedTuple):
    reply: Reply
    size: int
    steps: Steps


class _Line:
    """Requests up to one size."""

    def __init__(self, longest_bytes: int, most_bytes: int) -> None:
        self.longest_bytes = longest_bytes
        self._most_bytes = most_bytes
        self.begun_bytes = 0
        self.waiting: dict[int, _Waiting] = {}
        """The waiting request of each connection, in the order of arrival."""

    def has_room(self, size: int) -> bool:
        return not self.begun_bytes or self.begun_bytes + size <= self._most_bytes


class WideRequests:
    def __init__(self, turns: Turns) -> None:
        self._turns = turns
        self._lines = [_Line(longest_bytes, most_bytes) for longest_bytes, most_bytes in LINES]

    @property
    def begun_bytes(self) -> int:
        return sum(line.begun_bytes for line in self._lines)

    def __len__(self) -> int:
        """The number of requests that wait."""
        return sum(len(line.waiting) for line in self._lines)

    def has_room(self, size: int) -> bool:
        """True if a request of this size begins now: no other one of its line waits, and their bytes are in bounds."""
        line = self._line(size)
        return not line.waiting and line.has_room(size)

    def wait(self, reply: Reply, size: int, steps: Steps) -> None:
        """Takes the steps in turns, once there is room."""
        reply.hold()
        self._line(size).waiting[reply.connection_id] = _Waiting(reply, size, steps)

    def counted(self, size: int, steps: Steps) -> Steps:
        """The steps of a request that begins now; its bytes count until they end."""
        counting = self._counting(self._line(size), size, steps)
        next(counting)  # from here on they count, also if no step is ever taken
        return counting

    def _counting(self, line: _Line, size: int, steps: Steps) -> Steps:
        line.begun_bytes += size
        try:
            yield
            yield from steps
        finally:
            line.begun_bytes -= size
            self._begin_next(line)

    def _begin_next(self, line: _Line) -> None:
        while line.waiting:
            connection_id, (reply, size, steps) = next(iter(line.waiting.items()))
            if not line.has_room(size):
                return
            del line.waiting[connection_id]
            self._turns.add(reply, self.counted(size, steps))
            reply.release()

    def connection_closed(self, connection_id: int) -> None:
        for line in self._lines:
            if (waiting := line.waiting.pop(connection_id, None)) is not None:
                waiting.steps.close()
                self._begin_next(line)

    def _line(self, size: int) -> _Line:
        return next(line for line in self._lines if size <= line.longest_bytes)
