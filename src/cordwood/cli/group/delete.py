"""`cordwood group delete`."""

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from cordwood.cli.failure import ExitCode, Failure
from cordwood.cli.options import (
    DEFAULT_BOOTSTRAP_SERVERS,
    DEFAULT_TIMEOUT_S,
    AsJson,
    BootstrapServers,
    TimeoutSeconds,
    checked_names,
)
from cordwood.cli.output import count_in_words, print_json, remark, say

if TYPE_CHECKING:
    from cordwood.cli.connection import Connection


def delete_groups(
    groups: Annotated[
        list[str],
        typer.Argument(metavar="GROUP...", callback=checked_names, help="One or more groups.", show_default=False),
    ],
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask. Scripts need it.")] = False,
    bootstrap_servers: BootstrapServers = DEFAULT_BOOTSTRAP_SERVERS,
    timeout_s: TimeoutSeconds = DEFAULT_TIMEOUT_S,
    as_json: AsJson = False,
) -> None:
    """Delete groups without members, with all their positions. There is no way back."""
    from cordwood.cli.connection import Connection
    from cordwood.cli.group.view import committed_offsets, describe

    connection = Connection(bootstrap_servers, timeout_s)
    names = list(dict.fromkeys(groups))
    for name in names:
        describe(connection, name)
    if not yes:
        if not sys.stdin.isatty():
            raise Failure("USAGE", "deleting needs a yes, and nobody is there to ask", "add --yes", ExitCode.USAGE)
        for name in names:
            say(f"{name}: {count_in_words(len(committed_offsets(connection, name)), 'position')} will be gone")
        if not typer.confirm("Delete?"):
            remark("Nothing was deleted.")
            raise typer.Exit(ExitCode.FAILED)
    deleted: list[str] = []
    failures: dict[str, Failure] = {}
    for name in names:
        try:
            _delete(connection, name)
        except Failure as failure:
            failures[name] = failure
        else:
            deleted.append(name)
            if not as_json:
                say(f"{name}: deleted")
    if as_json:
        failed = [{"group": name, "code": each.code, "message": each.message} for name, each in failures.items()]
        print_json({"deleted": deleted, "failed": failed})
    if failures:
        raise _summary(failures)


def _delete(connection: "Connection", name: str) -> None:
    """One group to a request: asked again for all together, one that is gone by now would count as a failure."""
    connection.ask_all(lambda admin: admin.delete_consumer_groups([name]))


def _summary(failures: dict[str, Failure]) -> Failure:
    """One failure that names every group. What sets the code and the hint is the first."""
    first = next(iter(failures.values()))
    exit_codes = {each.exit_code for each in failures.values()}
    return Failure(
        first.code,
        "; ".join(f"{name}: not deleted: {each.message}" for name, each in failures.items()),
        first.hint,
        first.exit_code if len(exit_codes) == 1 else ExitCode.FAILED,
    )
