"""`cordwood group reset`: moves a group's positions. A dry run without --execute."""

from typing import TYPE_CHECKING, Annotated

import typer

from cordwood.administration.group.reset import Move, move_positions, parse_target, plan
from cordwood.cli.terminal.connecting import ClientConfig, Servers, connect
from cordwood.cli.terminal.options import (
    DEFAULT_TIMEOUT_S,
    AsJson,
    GroupName,
    TimeoutSeconds,
    checked_name,
)
from cordwood.cli.terminal.output import print_json, print_table, remark
from cordwood.model.failure import ExitCode, Failure
from cordwood.model.quantities import count_in_words

if TYPE_CHECKING:
    from cordwood.administration.connection import Connection
    from cordwood.administration.group.view import GroupView

MAX_REMARKS = 5
"""The most partitions with a separate remark."""


def reset(
    name: GroupName,
    topic: Annotated[
        str,
        typer.Option("--topic", "-t", metavar="TOPIC", callback=checked_name, help="The topic.", show_default=False),
    ],
    to: Annotated[
        str | None,
        typer.Option(
            "--to",
            metavar="WHERE",
            help="beginning (earliest), end (latest), an offset, or a time: @2026-01-31T12:00:00Z, @1700000000000 "
            "(milliseconds).",
            show_default=False,
        ),
    ] = None,
    shift: Annotated[
        int | None,
        typer.Option(
            "--shift", metavar="N", help="Move by this many offsets; a negative number moves back.", show_default=False
        ),
    ] = None,
    back: Annotated[
        str | None,
        typer.Option(
            "--back",
            metavar="DURATION",
            help="Move to the first record written since this long ago: 90s, 2h, 7d.",
            show_default=False,
        ),
    ] = None,
    partitions: Annotated[
        list[int] | None,
        typer.Option(
            "--partition",
            "-p",
            metavar="N",
            help="Only this partition; may be given several times.",
            show_default=False,
        ),
    ] = None,
    execute: Annotated[
        bool, typer.Option("--execute", help="Move the positions; without it they are only shown.")
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show the moves only, which is the default.")] = False,
    bootstrap_servers: Servers = None,
    client_config: ClientConfig = None,
    timeout_s: TimeoutSeconds = DEFAULT_TIMEOUT_S,
    as_json: AsJson = False,
) -> None:
    """Move the positions of a group that has no members. Without --execute, only show the moves."""

    if execute and dry_run:
        raise Failure("USAGE", "--execute moves the positions, --dry-run does not", "give one of them", ExitCode.USAGE)
    target = parse_target(to, shift, back)
    connection = connect(bootstrap_servers, timeout_s, client_config)
    moves = plan(connection, name, topic, partitions, target)
    group = _group_if_there(connection, name)
    known, members = group is not None, len(group.members) if group is not None else 0
    if execute:
        move_positions(connection, name, topic, moves)
    if as_json:
        print_json(
            {
                "group": name,
                "topic": topic,
                "executed": execute,
                "known": known,
                "members": members,
                "positions": [move._asdict() for move in moves],
            }
        )
        return
    print_table(["partition", "before", "after"], [(move.partition, move.before, move.after) for move in moves])
    _remark_on_clamped(moves)
    if execute:
        return
    if not known:
        remark(f"There is no group {name} yet: --execute creates it.")
    if members:
        remark(f"{name} has {count_in_words(members, 'member')}: --execute is refused until its consumers stop.")
    remark("Dry run: nothing was changed. --execute moves the positions.")


def _group_if_there(connection: "Connection", name: str) -> "GroupView | None":
    from cordwood.administration.group.view import describe

    try:
        return describe(connection, name)
    except Failure as failure:
        if failure.exit_code is not ExitCode.NOT_FOUND:
            raise
        return None


def _remark_on_clamped(moves: list[Move]) -> None:
    clamped = [move for move in moves if move.asked != move.after]
    for move in clamped[:MAX_REMARKS]:
        edge = "starts" if move.asked < move.after else "ends"
        remark(f"Partition {move.partition} has no offset {move.asked}: its log {edge} at {move.after}.")
    if (more := len(clamped) - MAX_REMARKS) > 0:
        remark(f"The same holds for {count_in_words(more, 'more partition')}.")
