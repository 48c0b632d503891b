"""The answers that wait in memory until their peers take them, over all connections.

Eighty peers that each asked for an answer of 10 MB and did not read it took 1.3 GB. Beyond a bound the connections
whose peers have taken nothing for the longest time are closed, until there is room.
"""

import logging
from collections.abc import Callable
from typing import Protocol

logger = logging.getLogger("cordwood.broker")

ROOM_MADE = 0.25
"""The share of the bound that is free after connections were closed: the next answers find room without a search."""


class Holder(Protocol):
    last_progress_s: float

    def too_slow(self, reason: str) -> None:
        """Closes the connection, without its answers."""


class WaitingAnswers:
    def __init__(self, most_bytes: int, time_s: Callable[[], float]) -> None:
        self._most_bytes = most_bytes
        self._time_s = time_s
        self.total_bytes = 0
        self._holders: dict[Holder, tuple[int, float]] = {}
        """The bytes of each holder, and the time since which it has any."""

    def note(self, holder: Holder, count: int) -> None:
        """Notes the bytes that wait for a peer now."""
        before, since_s = self._holders.get(holder, (0, 0.0))
        self.total_bytes += count - before
        if not count:
            self._holders.pop(holder, None)
            return
        self._holders[holder] = (count, since_s if before else self._time_s())
        if self.total_bytes > self._most_bytes:
            self._make_room()

    def _make_room(self) -> None:
        slowest_first = sorted(self._holders, key=lambda each: max(each.last_progress_s, self._holders[each][1]))
        enough = self._most_bytes * (1 - ROOM_MADE)
        for holder in slowest_first:
            if self.total_bytes <= enough:
                return
            count, _ = self._holders.pop(holder)
            self.total_bytes -= count
            holder.too_slow(
                f"{count} bytes of answers wait for its peer, and those of all connections are more than "
                f"queued.max.response.bytes ({self._most_bytes})"
            )
