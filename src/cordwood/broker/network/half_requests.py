"""Unfinished requests within an ordinary buffer, over all connections: the late ones are closed beyond a bound.

A request within an ordinary buffer needs no permission (`arriving.py`), so ten thousand connections that each send most
of such a request, and then nothing, keep 1.3 GB. Beyond the bound connections are closed whose requests had GRACE_S to
arrive, those that had most time first, until there is room. Clients over their quotas count, whose connections are not
read: their own use made them late.
"""

from collections.abc import Iterable
from typing import Final, Protocol

from cordwood.broker.network.arriving import GRACE_S, LOOK_S


class Peer(Protocol):
    requests: int

    @property
    def arrived_bytes(self) -> int: ...

    @property
    def receiving(self) -> bool: ...

    @property
    def paused(self) -> bool: ...

    def close(self, reason: str) -> None: ...


LONGEST_LOOK_S: Final = 2 * LOOK_S
"""The longest time between two looks that counts: in a longer pause it was the broker that did not receive."""

CLOSED_PER_LOOK: Final = 500
"""To close two thousand connections in one turn takes 100 ms."""


class HalfRequests:
    def __init__(self, most_bytes: int, buffer_bytes: int) -> None:
        self._most_bytes = most_bytes
        self._buffer_bytes = buffer_bytes
        self._seen: dict[Peer, tuple[int, float]] = {}
        """The number of requests that came before the unfinished one, and the time that this one has had."""
        self._looked_s = 0.0

    def look(self, peers: Iterable[Peer], lent_bytes: int, now_s: float) -> None:
        """Closes late peers if the lent buffers of all connections are beyond the bound."""
        passed_s, self._looked_s = min(now_s - self._looked_s, LONGEST_LOOK_S), now_s
        before, self._seen = self._seen, {}
        if lent_bytes <= self._most_bytes:
            return
        for peer in peers:
            if peer.arrived_bytes and (peer.receiving or peer.paused):
                requests, had_s = before.get(peer, (-1, 0.0))
                self._seen[peer] = peer.requests, had_s + passed_s if requests == peer.requests else 0.0
        late = sorted(self._seen.items(), key=lambda each: -each[1][1])
        for peer, (_, had_s) in late[:CLOSED_PER_LOOK]:
            if had_s < GRACE_S or lent_bytes <= self._most_bytes:
                break
            del self._seen[peer]
            lent_bytes -= self._buffer_bytes
            peer.close(
                "its request arrives too slowly, while requests that are arriving take more than "
                f"queued.max.request.bytes ({self._most_bytes})"
            )
