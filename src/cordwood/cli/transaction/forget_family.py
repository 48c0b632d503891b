"""`cordwood transaction forget-family`."""

import sys
from typing import Annotated

import typer

from cordwood.cli.failure import ExitCode, Failure
from cordwood.cli.options import DEFAULT_BOOTSTRAP_SERVERS, DEFAULT_TIMEOUT_S, AsJson, BootstrapServers, TimeoutSeconds
from cordwood.cli.output import print_json, remark, say


def forget_family(
    family: Annotated[str, typer.Argument(metavar="FAMILY", help="Its name.", show_default=False)],
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask. Scripts need it.")] = False,
    bootstrap_servers: BootstrapServers = DEFAULT_BOOTSTRAP_SERVERS,
    timeout_s: TimeoutSeconds = DEFAULT_TIMEOUT_S,
    as_json: AsJson = False,
) -> None:
    """Abort what a family has open, and forget what it decided, ten minutes later or more.

    Only for a query that never runs again: one that does would write its last batch once more.
    """
    from cordwood.cli.connection import Connection
    from cordwood.cli.transaction.family_view import aborted, described

    connection = Connection(bootstrap_servers, timeout_s)
    found = described(connection, family)
    last = "nothing" if found["last_batch_id"] is None else f"batch {found['last_batch_id']}"
    if not yes:
        if not sys.stdin.isatty():
            raise Failure("USAGE", "forgetting needs a yes, and nobody is there to ask", "add --yes", ExitCode.USAGE)
        say(f"{family} decided {last} last, and {found['joined_slots']} slots are joined")
        if not typer.confirm("Forget?"):
            remark("Nothing was forgotten.")
            raise typer.Exit(ExitCode.FAILED)
    aborted(connection, family, forget=True)
    if as_json:
        print_json({"family": family, "last_batch_id": found["last_batch_id"], "aborted_slots": found["joined_slots"]})
    else:
        say(f"{family}: will be forgotten; it decided {last} last, and {found['joined_slots']} slots were aborted")
