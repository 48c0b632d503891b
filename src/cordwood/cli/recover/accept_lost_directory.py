"""`cordwood recover accept-lost-directory`."""

from typing import Annotated

import typer

from cordwood.cli.recover.list import DataDirectoryArgument
from cordwood.cli.terminal.asking import DRY_RUN, DryRun, Yes, as_dry, confirm
from cordwood.cli.terminal.options import AsJson


def accept_lost_directory(
    directory: DataDirectoryArgument,
    lost: Annotated[
        str,
        typer.Argument(metavar="LOST", help="The path at which the lost directory was, or its directory.id."),
    ],
    dry_run: DryRun = False,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Accept that one of several data directories is lost for good, with all records in it.

    DIR is the directory with the broker's metadata. A broker alone refuses to start without a directory that it knows:
    the partitions in it would begin anew, empty, at offset 0. From the next start on they do. Positions of groups are
    kept: readers of such a partition are told that their offsets are out of range.

    The command names the partitions that are in none of the other directories, and asks.

    A node of a cluster needs no such command: its lost replicas are filled from other brokers.
    """
    from cordwood.broker.recovery.lost_directory import give_up, lost_directory
    from cordwood.broker.recovery.offline import taken_of_several
    from cordwood.cli.terminal.output import print_json, remark, say

    with taken_of_several(directory) as held:
        found = lost_directory(held, lost)
        if not as_json:
            say(found.in_words)
        if not dry_run:
            confirm("giving up records", f"Give up all records that were in {found.path}?", yes=yes)
            give_up(held, found)
    if as_json:
        lost_partitions = None if found.partitions is None else list(map(str, found.partitions))
        print_json({"directory": found.path, "partitions": lost_partitions, **as_dry(dry_run)})
    elif dry_run:
        remark(DRY_RUN)
    else:
        say(f"The records in {found.path} are given up: the next start begins its partitions anew, at offset 0")
