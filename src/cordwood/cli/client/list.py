"""`cordwood client list`: finds the client that floods the brokers."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from cordwood.cli.terminal.options import (
    DEFAULT_BOOTSTRAP_SERVERS,
    DEFAULT_TIMEOUT_S,
    AsJson,
    BootstrapServers,
    Quiet,
    TimeoutSeconds,
    wait_s,
)
from cordwood.cli.terminal.output import print_json, print_names, print_table, remark
from cordwood.model.quantities import count_in_words, size_in_words

if TYPE_CHECKING:
    from cordwood.administration.cluster.node_facts import NodeFacts
    from cordwood.administration.connection import Connection

ASKED_FOR = 1_000
"""The most clients in a broker's answer."""
SHOWN = 50

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


def list_clients(
    sample_s: Annotated[
        float,
        typer.Option("--sample", metavar="DURATION", parser=wait_s(0.1), help="How long to measure the rates."),
    ] = 2.0,
    everything: Annotated[
        bool, typer.Option("--all", help=f"Show all clients that the brokers tell of, not only the first {SHOWN}.")
    ] = False,
    quiet: Quiet = False,
    bootstrap_servers: BootstrapServers = DEFAULT_BOOTSTRAP_SERVERS,
    timeout_s: TimeoutSeconds = DEFAULT_TIMEOUT_S,
    as_json: AsJson = False,
) -> None:
    """Show which clients use the brokers, by client id and address: connections, requests, bytes and their rates.

    The client with the most requests a second comes first, then the one with the most bytes: that client floods the
    brokers. Many connects a second show a client that connects again and again; `open` is the number of its present
    connections. Each broker lists the 1,000 clients with the most requests since it started; other brokers are clients
    as well.
    """
    from cordwood.administration.connection import Connection

    found = rates(Connection(bootstrap_servers, timeout_s), sample_s)
    if as_json:
        print_json([each._asdict() for each in found])
        return
    if quiet:
        print_names(f"{each.client_id}\t{each.host}" for each in found)
        return
    shown = found if everything else found[:SHOWN]
    print_table(
        ["client id", "address", "open", "requests/s", "bytes/s", "connects/s", "requests"],
        [
            (
                each.client_id or None,
                each.host,
                each.connections,
                f"{each.requests_per_s:,.1f}",
                size_in_words(round(each.bytes_per_s)),
                f"{each.accepted_per_s:,.1f}",
                each.requests,
            )
            for each in shown
        ],
    )
    if left := len(found) - len(shown):
        remark(f"{count_in_words(left, 'client')} more: --all shows them.")


def rates(connection: Connection, sample_s: float) -> list[ClientView]:
    """All clients, from two looks at all brokers; those with the most requests now come first."""
    from cordwood.administration.cluster.node_facts import facts_of_nodes

    before = facts_of_nodes(connection, ASKED_FOR)
    began_s = time.monotonic()
    time.sleep(sample_s)
    after = facts_of_nodes(connection, ASKED_FOR)
    took_s = time.monotonic() - began_s
    for node, facts in after.items():
        if facts is None:
            remark(f"Broker {node} does not answer, or runs a release that does not tell of its clients.")
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
