"""`cordwood group delete`."""

import sys
from typing import Annotated

import typer

from cordwood.cli.failure import ExitCode, Failure
from cordwood.cli.options import DEFAULT_BOOTSTRAP_SERVERS, DEFAULT_TIMEOUT_S, AsJson, BootstrapServers, TimeoutSeconds
from cordwood.cli.output import count_in_words, print_json, remark, say


def delete_groups(
    groups: Annotated[list[str], typer.Argument(metavar="GROUP...", help="One or more groups.", show_default=False)],
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask. Scripts need it.")] = False,
    bootstrap_servers: BootstrapServers = DEFAULT_BOOTSTRAP_SERVERS,
    timeout_s: TimeoutSeconds = DEFAULT_TIMEOUT_S,
    as_json: AsJson = False,
) -> None:
    """Delete groups without members, with all their positions. There is no way back."""
    from cordwood.cli.connection import Connection
    from cordwood.cli.group.view import committed_offsets, describe

    connection = Connection(bootstrap_servers, timeout_s)
    for name in groups:
        describe(connection, name)
    if not yes:
        if not sys.stdin.isatty():
            raise Failure("USAGE", "deleting needs a yes, and nobody is there to ask", "add --yes", ExitCode.USAGE)
        for name in groups:
            say(f"{name}: {count_in_words(len(committed_offsets(connection, name)), 'position')} will be gone")
        if not typer.confirm("Delete?"):
            remark("Nothing was deleted.")
            raise typer.Exit(ExitCode.FAILED)
    connection.ask_all(lambda admin: admin.delete_consumer_groups(groups))
    if as_json:
        print_json({"deleted": groups})
    else:
        for name in groups:
            say(f"{name}: deleted")
