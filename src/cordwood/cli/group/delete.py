"""`cordwood group delete`."""

import sys
from typing import Annotated

import typer

from cordwood.cli.deleting import delete_each
from cordwood.cli.failure import ExitCode, Failure
from cordwood.cli.options import (
    DEFAULT_BOOTSTRAP_SERVERS,
    DEFAULT_TIMEOUT_S,
    AsJson,
    BootstrapServers,
    TimeoutSeconds,
    checked_names,
)
from cordwood.cli.output import count_in_words, remark, say


def delete_groups(
    groups: Annotated[
        list[str],
        typer.Argument(metavar="GROUP", callback=checked_names, help="One or more groups.", show_default=False),
    ],
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation; needed in scripts.")] = False,
    bootstrap_servers: BootstrapServers = DEFAULT_BOOTSTRAP_SERVERS,
    timeout_s: TimeoutSeconds = DEFAULT_TIMEOUT_S,
    as_json: AsJson = False,
) -> None:
    """Delete groups that have no members, with all their positions. There is no way back."""
    from cordwood.cli.connection import Connection
    from cordwood.cli.group.view import committed_offsets, describe

    connection = Connection(bootstrap_servers, timeout_s)
    names = list(dict.fromkeys(groups))
    for name in names:
        describe(connection, name)
    if not yes:
        if not sys.stdin.isatty():
            raise Failure(
                "USAGE",
                "deleting needs a confirmation, and there is no terminal to ask on",
                "add --yes",
                ExitCode.USAGE,
            )
        for name in names:
            say(f"{name}: {count_in_words(len(committed_offsets(connection, name)), 'position')} will be gone")
        if not typer.confirm("Delete?"):
            remark("Nothing was deleted.")
            raise typer.Exit(ExitCode.FAILED)
    delete_each(
        "group",
        names,
        lambda name: connection.ask_all(lambda admin: admin.delete_consumer_groups([name])),
        as_json=as_json,
    )
