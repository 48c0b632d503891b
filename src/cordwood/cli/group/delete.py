"""`cordwood group delete`."""

from typing import Annotated

import typer

from cordwood.cli.terminal.asking import DRY_RUN, DryRun, Yes, confirm
from cordwood.cli.terminal.connecting import ClientConfig, Servers, connect
from cordwood.cli.terminal.deleting import delete_each
from cordwood.cli.terminal.options import (
    DEFAULT_TIMEOUT_S,
    AsJson,
    TimeoutSeconds,
    checked_names,
)
from cordwood.cli.terminal.output import print_json, remark, say
from cordwood.model.quantities import count_in_words


def delete_groups(
    groups: Annotated[
        list[str],
        typer.Argument(metavar="GROUP", callback=checked_names, help="One or more groups.", show_default=False),
    ],
    dry_run: DryRun = False,
    yes: Yes = False,
    bootstrap_servers: Servers = None,
    client_config: ClientConfig = None,
    timeout_s: TimeoutSeconds = DEFAULT_TIMEOUT_S,
    as_json: AsJson = False,
) -> None:
    """Delete groups that have no members, with all their positions. There is no way back."""
    from cordwood.administration.group.view import committed_offsets, describe

    connection = connect(bootstrap_servers, timeout_s, client_config)
    names = list(dict.fromkeys(groups))
    for name in names:
        describe(connection, name)
    if not (yes or as_json):
        for name in names:
            say(f"{name}: {count_in_words(len(committed_offsets(connection, name)), 'position')} will be gone")
    if dry_run:
        if as_json:
            print_json({"would_delete": names})
        else:
            remark(DRY_RUN)
        return
    confirm("deleting", "Delete?", yes=yes, otherwise="Nothing was deleted.")
    delete_each(
        "group",
        names,
        lambda name: connection.ask_all(lambda admin: admin.delete_consumer_groups([name])),
        as_json=as_json,
    )
