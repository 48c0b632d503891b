"""`cordwood group watch`: a group's lag as it changes."""

import sys
import time
from typing import TYPE_CHECKING, Annotated

import typer

from cordwood.cli.terminal.connecting import ClientConfig, Servers, connect
from cordwood.cli.terminal.options import (
    DEFAULT_TIMEOUT_S,
    AsJson,
    GroupName,
    TimeoutSeconds,
    wait_s,
)
from cordwood.cli.terminal.output import console, print_json_line, print_table, say
from cordwood.model.quantities import count_in_words

if TYPE_CHECKING:
    from rich.console import RenderableType

    from cordwood.administration.group.lag import GroupLook


def watch_group(
    name: GroupName,
    interval_s: Annotated[
        float,
        typer.Option(
            "--interval",
            "-i",
            metavar="DURATION",
            parser=wait_s(0.1),
            help="The time between two looks.",
        ),
    ] = 2.0,
    once: Annotated[
        bool, typer.Option("--once", help="For scripts: show the group once, after two looks for the rates, and end.")
    ] = False,
    bootstrap_servers: Servers = None,
    client_config: ClientConfig = None,
    timeout_s: TimeoutSeconds = DEFAULT_TIMEOUT_S,
    as_json: AsJson = False,
) -> None:
    """Show a group's lag, drain rate and time to data loss, again and again. With --json each look is one line."""
    from cordwood.administration.group.lag import LagReader

    reader = LagReader(connect(bootstrap_servers, timeout_s, client_config), name)
    if once:
        reader.look()
        time.sleep(interval_s)
        _show(reader.look(), as_json=as_json)
        return
    try:
        if as_json or not sys.stdout.isatty():
            while True:
                _show(reader.look(), as_json=as_json)
                sys.stdout.flush()
                time.sleep(interval_s)
        from rich.live import Live

        out = console()
        with Live(console=out, auto_refresh=False) as live:
            while True:
                look = reader.look()
                live.update(_table(look, out.width), refresh=True)
                time.sleep(interval_s)
    except KeyboardInterrupt:
        return


def _show(look: "GroupLook", *, as_json: bool) -> None:
    from cordwood.cli.group.table import COLUMNS, cells

    if as_json:
        print_json_line(
            {
                "name": look.group.name,
                "state": look.group.state,
                "at_ms": int(time.time() * 1000),
                "positions": [row.as_json() for row in look.rows],
            }
        )
        return
    say(_title(look))
    print_table(COLUMNS, [cells(row) for row in look.rows])


def _table(look: "GroupLook", width: int) -> "RenderableType":
    from cordwood.cli.group.table import COLUMNS, cells
    from cordwood.cli.terminal.table import fitting

    return fitting(COLUMNS, [cells(row) for row in look.rows], width, title=_title(look))


def _title(look: "GroupLook") -> str:
    behind = sum((row.lag.lag_records or 0) for row in look.rows if row.lag is not None)
    members = count_in_words(len(look.group.members), "member")
    return f"{look.group.name}: {look.group.state}, {members}, {count_in_words(behind, 'record')} behind"
