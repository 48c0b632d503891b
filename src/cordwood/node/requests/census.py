"""The users of a broker, its release and its troubles with others: facts of the process around a node, answered by
DescribeNode."""

from collections.abc import Sequence
from typing import NamedTuple, Protocol


class ClientUse(NamedTuple):
    """The requests of the clients with one client id, at one address, since this broker started."""

    client_id: str
    host: str
    connections: int
    """Connections that are open."""
    accepted: int
    """Connections that were ever open."""
    requests: int
    request_bytes: int


class UnreachedPeer(NamedTuple):
    """Another broker with which this one cannot speak, though a process is there."""

    broker_id: int
    reason: str


class Census(Protocol):
    @property
    def version(self) -> str: ...

    @property
    def commit(self) -> str:
        """The commit from which the release was made; `unknown` if nothing tells."""

    def clients(self, most: int) -> Sequence[ClientUse]:
        """The clients that asked most, at most this many."""

    def unreached(self) -> Sequence[UnreachedPeer]:
        """The other brokers with which this one cannot speak."""


class NoCensus:
    """The census of a node without a network."""

    version = ""
    commit = ""

    def clients(self, most: int) -> Sequence[ClientUse]:
        return ()

    def unreached(self) -> Sequence[UnreachedPeer]:
        return ()
