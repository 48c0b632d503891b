"""`cordwood transaction list`."""

from typing import Annotated

import typer

from cordwood.cli.options import DEFAULT_BOOTSTRAP_SERVERS, DEFAULT_TIMEOUT_S, AsJson, BootstrapServers, TimeoutSeconds
from cordwood.cli.output import print_json, print_table, remark


def list_transactions(
    states: Annotated[
        list[str] | None,
        typer.Option("--state", "-s", metavar="STATE", help="Only those in this state, such as `Ongoing`. Repeatable."),
    ] = None,
    bootstrap_servers: BootstrapServers = DEFAULT_BOOTSTRAP_SERVERS,
    timeout_s: TimeoutSeconds = DEFAULT_TIMEOUT_S,
    as_json: AsJson = False,
) -> None:
    """List transactional ids, the state of their last transaction and their producers."""
    from cordwood.cli.connection import Connection
    from cordwood.cli.transaction.view import listed

    found = listed(Connection(bootstrap_servers, timeout_s), states or [])
    if as_json:
        print_json(found)
    elif found:
        print_table(
            ["transactional id", "state", "producer id"],
            [(each["transactional_id"], each["state"], each["producer_id"]) for each in found],
        )
    else:
        remark("No transactions.")
