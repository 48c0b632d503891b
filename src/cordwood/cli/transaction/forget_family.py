"""`cordwood transaction forget-family`."""

import sys
from typing import Annotated

import typer

from cordwood.cli.failure import ExitCode, Failure
from cordwood.cli.options import DEFAULT_BOOTSTRAP_SERVERS, DEFAULT_TIMEOUT_S, AsJson, BootstrapServers, TimeoutSeconds
from cordwood.cli.output import print_json, remark, say


def forget_family(
    family: Annotated[str, typer.Argument(metavar="FAMILY", help="The family's name.", show_default=False)],
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation; needed in scripts.")] = False,
    bootstrap_servers: BootstrapServers = DEFAULT_BOOTSTRAP_SERVERS,
    timeout_s: TimeoutSeconds = DEFAULT_TIMEOUT_S,
    as_json: AsJson = False,
) -> None:
    """Abort a family's open transactions, and forget its decided batches after ten minutes or more.

    Only for a query that never runs again: if it does, it may write its last batch once more.
    """
    from cordwood.cli.connection import Connection
    from cordwood.cli.transaction.family_view import aborted, described

    connection = Connection(bootstrap_servers, timeout_s)
    found = described(connection, family)
    last = "nothing" if found["last_batch_id"] is None else f"batch {found['last_batch_id']}"
    if not yes:
        if not sys.stdin.isatty():
            raise Failure(
                "USAGE",
                "forgetting needs a confirmation, and there is no terminal to ask on",
                "add --yes",
                ExitCode.USAGE,
            )
        say(f"{family}: the last decision was {last}, and {found['joined_slots']} slots are joined")
        if not typer.confirm("Forget?"):
            remark("Nothing was forgotten.")
            raise typer.Exit(ExitCode.FAILED)
    aborted(connection, family, forget=True)
    if as_json:
        print_json({"family": family, "last_batch_id": found["last_batch_id"], "aborted_slots": found["joined_slots"]})
    else:
        say(f"{family}: will be forgotten; the last decision was {last}, {found['joined_slots']} slots were aborted")
