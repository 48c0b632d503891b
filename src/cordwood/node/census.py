"""Who uses a broker, and which release it runs: facts of the process around a node, told by DescribeNode."""

from collections.abc import Sequence
from typing import NamedTuple, Protocol


class ClientUse(NamedTuple):
    """What the clients with one client id, at one address, have asked of this broker since it started."""

    client_id: str
    host: str
    connections: int
    """Those that are open."""
    accepted: int
    """Those that were ever open."""
    requests: int
    request_bytes: int


class Census(Protocol):
    @property
    def version(self) -> str: ...

    @property
    def commit(self) -> str:
        """Of which the release was made; `unknown` if nothing tells."""

    def clients(self, most: int) -> Sequence[ClientUse]:
        """The clients that asked most, at most this many."""


class NoCensus:
    """Of a node that nobody connects to over a network."""

    version = ""
    commit = ""

    def clients(self, most: int) -> Sequence[ClientUse]:
        return ()
