"""`cordwood group lag`: the lag of all groups in one table."""

from typing import Annotated

import typer

from cordwood.cli.terminal.connecting import ClientConfig, Servers, connect
from cordwood.cli.terminal.options import (
    DEFAULT_TIMEOUT_S,
    AsJson,
    Quiet,
    TimeoutSeconds,
    checked_names,
)
from cordwood.cli.terminal.output import print_json, print_names, print_table, remark


def group_lag(
    names: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="GROUP", callback=checked_names, help="Groups; all if none is named.", show_default=False
        ),
    ] = None,
    quiet: Quiet = False,
    bootstrap_servers: Servers = None,
    client_config: ClientConfig = None,
    timeout_s: TimeoutSeconds = DEFAULT_TIMEOUT_S,
    as_json: AsJson = False,
) -> None:
    """Show the lag of all groups in one table, by topic; the largest comes first.

    `cordwood group describe` shows one group with its partitions, its speed and the time until it loses records.
    """
    from cordwood.administration.group.lags import lags

    found = lags(connect(bootstrap_servers, timeout_s, client_config), set(names or ()))
    if as_json:
        print_json([each._asdict() for each in found])
    elif quiet:
        print_names(dict.fromkeys(each.group for each in found))
    elif found:
        print_table(
            ["group", "state", "topic", "partitions", "lag", "largest", "unknown"],
            [(*each[:-1], each.unknown or None) for each in found],
        )
    else:
        remark("No group has a position yet.")
