"""`cordwood client list`: finds the client that floods the brokers."""

from typing import Annotated

import typer

from cordwood.cli.terminal.connecting import ClientConfig, Servers, connect
from cordwood.cli.terminal.options import (
    DEFAULT_TIMEOUT_S,
    AsJson,
    Quiet,
    TimeoutSeconds,
    wait_s,
)
from cordwood.cli.terminal.output import print_json, print_names, print_table, remark
from cordwood.model.quantities import count_in_words, size_in_words

SHOWN = 50


def list_clients(
    sample_s: Annotated[
        float,
        typer.Option("--sample", metavar="DURATION", parser=wait_s(0.1), help="How long to measure the rates."),
    ] = 2.0,
    everything: Annotated[
        bool, typer.Option("--all", help=f"Show all clients that the brokers tell of, not only the first {SHOWN}.")
    ] = False,
    quiet: Quiet = False,
    bootstrap_servers: Servers = None,
    client_config: ClientConfig = None,
    timeout_s: TimeoutSeconds = DEFAULT_TIMEOUT_S,
    as_json: AsJson = False,
) -> None:
    """Show which clients use the brokers, by client id and address: connections, requests, bytes and their rates.

    The client with the most requests a second comes first, then the one with the most bytes: that client floods the
    brokers. Many connects a second show a client that connects again and again; `open` is the number of its present
    connections. Each broker lists the 1,000 clients with the most requests since it started; other brokers are clients
    as well.
    """
    from cordwood.administration.cluster.clients import rates

    found = rates(connect(bootstrap_servers, timeout_s, client_config), sample_s, remark)
    if as_json:
        print_json([each._asdict() for each in found])
        return
    if quiet:
        print_names((each.client_id, each.host) for each in found)
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
