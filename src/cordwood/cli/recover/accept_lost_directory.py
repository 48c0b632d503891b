"""`cordwood recover accept-lost-directory`."""

from typing import Annotated

import typer

from cordwood.cli.recover.list import DataDirectoryArgument


def accept_lost_directory(
    directory: DataDirectoryArgument,
    lost: Annotated[
        str,
        typer.Argument(metavar="LOST", help="The path at which the lost directory was, or its directory.id."),
    ],
) -> None:
    """Accept that one of several data directories is lost for good, with all records in it.

    DIR is the directory with the broker's metadata. A broker alone refuses to start without a directory that it knows:
    the partitions in it would begin anew, empty, at offset 0. From the next start on they do. Positions of groups are
    kept: readers of such a partition are told that their offsets are out of range.

    A node of a cluster needs no such command: its lost replicas are filled from other brokers.
    """
    from cordwood.cli.failure import ExitCode, Failure
    from cordwood.cli.output import say
    from cordwood.cli.recover.offline import taken_of_several
    from cordwood.log.directory.identity import read_identity, write_identity

    with taken_of_several(directory) as held:
        owner = held.identity()
        known = {} if owner is None else dict(owner.directories)
        found = [each for each, path in known.items() if lost in (each, path)]
        if owner is None or not found:
            names = ", ".join(f"{path} ({each})" for each, path in sorted(known.items(), key=lambda item: item[1]))
            raise Failure(
                "NO_SUCH_DIRECTORY",
                f"{held.path} knows no data directory {lost}",
                f"it knows {names}" if names else "give the directory with the broker's metadata",
                ExitCode.NOT_FOUND,
            )
        path = known.pop(found[0])
        if found[0] == owner.directory_id:
            raise Failure("NOT_LOST", f"{lost} is {held.path} itself", "", ExitCode.USAGE)
        there = read_identity(held.filesystem, path)
        if there is not None and there.directory_id == found[0]:
            raise Failure("NOT_LOST", f"{path} is there, with its data", "name it in log.dirs")
        write_identity(held.filesystem, held.path, owner._replace(directories=known))
    say(f"The records in {path} are given up: the next start begins its partitions anew, at offset 0")
