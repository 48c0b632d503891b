"""The use of this broker: connections, requests and bytes by client id and address, also of connections that ended.

Each connection counts by itself, once for each receive and not for each request. The book adds the counts up on
request. The totals of ended connections are bounded: beyond `MOST_ENDED` clients those that ended first share one
entry.
"""

import heapq
from collections import OrderedDict
from collections.abc import Sequence
from typing import Final, Protocol

from cordwood import __version__
from cordwood.broker.network.peer_troubles import PeerTroubles
from cordwood.node.requests.census import ClientUse, UnreachedPeer

MOST_ENDED: Final = 1_000
LONGEST_ID: Final = 100
"""Characters of a client id that are kept: it may have 32,767."""
OTHERS: Final = ("(others that ended)", "")

Key = tuple[str, str]


class CountedConnection(Protocol):
    client_id: str | None
    """None: no request has come yet."""
    requests: int
    received_bytes: int

    @property
    def client_host(self) -> str: ...


class ClientBook:
    version = __version__

    def __init__(self, troubles: PeerTroubles | None = None) -> None:
        """`troubles` are told with the rest."""
        self._troubles = troubles or PeerTroubles()
        self._open: set[CountedConnection] = set()
        self._ended: OrderedDict[Key, ClientUse] = OrderedDict()
        """By client, in the order in which each last ended a connection."""

    @property
    def commit(self) -> str:
        # The first call imports much, which a start does not wait for: a broker's process makes it in a thread.
        from cordwood.broker.machine.build import build

        return build().commit

    def opened(self, connection: CountedConnection) -> None:
        self._open.add(connection)

    def closed(self, connection: CountedConnection) -> None:
        self._open.remove(connection)
        key = _key(connection)
        own = ClientUse(*key, 0, 1, connection.requests, connection.received_bytes)
        self._ended[key] = _sum(self._ended.pop(key, None), own)
        while len(self._ended) > MOST_ENDED:
            key, first = next((key, use) for key, use in self._ended.items() if key != OTHERS)
            del self._ended[key]
            self._ended[OTHERS] = _sum(self._ended.pop(OTHERS, None), first)._replace(
                client_id=OTHERS[0], host=OTHERS[1]
            )

    def unreached(self) -> Sequence[UnreachedPeer]:
        return self._troubles.unreached()

    def clients(self, most: int) -> Sequence[ClientUse]:
        """The clients that asked most, at most this many."""
        if not most:
            return ()
        # Plain lists, and a value only for clients in the answer: ten thousand connections are counted in one turn.
        counts: dict[Key, list[int]] = {key: list(use[2:]) for key, use in self._ended.items()}
        for connection in self._open:
            key = _key(connection)
            count = counts.get(key)
            if count is None:
                counts[key] = [1, 1, connection.requests, connection.received_bytes]
            else:
                count[0] += 1
                count[1] += 1
                count[2] += connection.requests
                count[3] += connection.received_bytes
        asked_most = heapq.nlargest(most, [(count[2], key) for key, count in counts.items()])
        return [ClientUse(*key, *counts[key]) for _, key in asked_most]


def _key(connection: CountedConnection) -> Key:
    return (connection.client_id or "")[:LONGEST_ID], connection.client_host


def _sum(one: ClientUse | None, other: ClientUse) -> ClientUse:
    if one is None:
        return other
    return ClientUse(
        one.client_id,
        one.host,
        one.connections + other.connections,
        one.accepted + other.accepted,
        one.requests + other.requests,
        one.request_bytes + other.request_bytes,
    )
