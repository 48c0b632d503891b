"""The clients of a cluster and their rates: which one floods the brokers."""

import time
from collections.abc import Callable
from typing import NamedTuple

from cordwood.administration.cluster.node_facts import NodeFacts, facts_of_nodes
from cordwood.administration.connection import Connection

ASKED_FOR = 1_000
"""The most clients in a broker's answer."""
Key = tuple[str, str]


class ClientView(NamedTuple):
    """A client at all brokers together."""

    client_id: str
    host: str
    connections: int
    accepted: int
    requests: int
    request_bytes: int
    requests_per_s: float
    bytes_per_s: float
    accepted_per_s: float


def rates(connection: Connection, sample_s: float, say: Callable[[str], None]) -> list[ClientView]:
    """All clients, from two looks at all brokers; those with the most requests now come first. `say` is told of
    brokers that do not answer."""
    before = facts_of_nodes(connection, ASKED_FOR)
    began_s = time.monotonic()
    time.sleep(sample_s)
    after = facts_of_nodes(connection, ASKED_FOR)
    took_s = time.monotonic() - began_s
    for node, facts in after.items():
        if facts is None:
            say(f"Broker {node} does not answer, or runs a release that does not tell of its clients.")
    return clients_of(before, after, took_s)


def clients_of(
    before: dict[int, NodeFacts | None], after: dict[int, NodeFacts | None], took_s: float
) -> list[ClientView]:
    """The clients, from two answers of brokers. A broker that is new, or was restarted, gives totals and no rates."""
    totals: dict[Key, list[float]] = {}
    for node, facts in after.items():
        if facts is None:
            continue
        earlier = before.get(node)
        known = {} if earlier is None else {(use.client_id, use.host): use for use in earlier.clients}
        for use in facts.clients:
            key = (use.client_id, use.host)
            sums = totals.setdefault(key, [0.0] * 7)
            for place, number in enumerate((use.connections, use.accepted, use.requests, use.request_bytes)):
                sums[place] += number
            first = known.get(key)
            if earlier is None:
                continue
            grown = (
                use.requests - (0 if first is None else first.requests),
                use.request_bytes - (0 if first is None else first.request_bytes),
                use.accepted - (0 if first is None else first.accepted),
            )
            for place, number in enumerate(grown, 4):
                sums[place] += max(number, 0) / took_s
    views = [ClientView(*key, *(int(number) for number in sums[:4]), *sums[4:]) for key, sums in totals.items()]
    return sorted(views, key=lambda view: (-view.requests_per_s, -view.bytes_per_s, -view.requests, view))
