"""Facts of each broker about itself, by DescribeNode, an API of Cordwood's own: its release, its clients, and its
troubles with other brokers."""

from __future__ import annotations

from typing import NamedTuple

from cordwood.administration.asking import ask
from cordwood.administration.brokers import brokers_that_take_part
from cordwood.administration.connection import Connection
from cordwood.client.settings import Address
from cordwood.model.failure import Failure
from cordwood.wire.apis import ApiKey

PATIENCE_S = 3.0
"""The timeout of one broker: a broker that hangs does not delay the others' answers."""


class ClientUse(NamedTuple):
    """The requests of the clients with one client id, at one address, since the broker started."""

    client_id: str
    host: str
    connections: int
    """Connections that are open."""
    accepted: int
    """Connections that were ever open."""
    requests: int
    request_bytes: int


class NodeFacts(NamedTuple):
    version: str
    commit: str
    clients: tuple[ClientUse, ...] = ()
    unreached: tuple[str, ...] = ()
    """Other brokers with which this one cannot speak, with the reason, as a sentence without a full stop."""

    @property
    def release(self) -> str:
        """The release as text: `0.1.0 (1a2b3c4d)`."""
        return f"{self.version} ({self.commit[:8]})"


def facts_of_nodes(connection: Connection, most_clients: int = 0) -> dict[int, NodeFacts | None]:
    """The facts by node; None if the broker does not answer, or runs a release without this API."""
    timeout_s = min(connection.timeout_s, PATIENCE_S)
    return {
        node: facts_of(address, timeout_s, most_clients) for node, address in brokers_that_take_part(connection).items()
    }


def facts_of(address: Address, timeout_s: float, most_clients: int = 0) -> NodeFacts | None:
    try:
        told = ask(address, ApiKey.DESCRIBE_NODE, 0, {"most_clients": most_clients}, timeout_s)
    except Failure:
        return None
    clients = tuple(
        ClientUse(each.client_id, each.host, each.connections, each.accepted, each.requests, each.request_bytes)
        for each in told.clients
    )
    return NodeFacts(told.version, told.commit, clients, tuple(each.reason for each in told.unreached))
