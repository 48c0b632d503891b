"""`cordwood recover accept-lost-directory`."""

import os
from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated

import typer

from cordwood.cli.recover.list import DataDirectoryArgument
from cordwood.cli.terminal.asking import DRY_RUN, DryRun, Yes, as_dry, confirm
from cordwood.cli.terminal.options import AsJson
from cordwood.model.failure import ExitCode, Failure

if TYPE_CHECKING:
    from cordwood.broker.storage.lost_properties import Known
    from cordwood.log.directory.data_directory import DataDirectory
    from cordwood.log.directory.identity import Identity
    from cordwood.model.identifiers import TopicPartition


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
    from cordwood.broker.recovery.offline import taken_of_several
    from cordwood.broker.storage import accepted_losses
    from cordwood.cli.terminal.output import print_json, remark, say
    from cordwood.log.directory.identity import write_identity

    with taken_of_several(directory) as held:
        owner, lost_id = _found(held, lost)
        path = owner.directories[lost_id]
        others = {each: at for each, at in owner.directories.items() if each != lost_id}
        partitions = _nowhere_else(held, others.values())
        if not as_json:
            say(_loss_in_words(held.path, path, partitions))
        if not dry_run:
            confirm("giving up records", f"Give up all records that were in {path}?", yes=yes)
            if partitions:
                accepted_losses.note(held.filesystem, held.path, path, partitions)
            write_identity(held.filesystem, held.path, owner._replace(directories=others))
    if as_json:
        lost_partitions = None if partitions is None else list(map(str, partitions))
        print_json({"directory": path, "partitions": lost_partitions, **as_dry(dry_run)})
    elif dry_run:
        remark(DRY_RUN)
    else:
        say(f"The records in {path} are given up: the next start begins its partitions anew, at offset 0")


def _loss_in_words(home: str, lost: str, partitions: "list[TopicPartition] | None") -> str:
    from cordwood.broker.storage.accepted_losses import in_words
    from cordwood.model.identifiers import INTERNAL_TOPICS

    if partitions is None:
        return f"Which partitions were in {lost} cannot be told: {home} has no metadata that can be read."
    if not partitions:
        return f"All partitions are in other directories: no records were in {lost} alone."
    # The text names only some partitions: those of users come before those of the broker's own topics.
    users_first = sorted(partitions, key=lambda partition: partition.topic in INTERNAL_TOPICS)
    return (
        f"{in_words(list(map(str, users_first)))}: in none of the other directories. They were in {lost}, or never had "
        f"records. Which offsets they had, only {lost} knew."
    )


def _found(held: "DataDirectory", lost: str) -> tuple["Identity", str]:
    """The identity of the home, and the id of the lost directory. Raises Failure."""
    from cordwood.broker.storage.lost_properties import lost_properties
    from cordwood.log.directory.directory_set import Place
    from cordwood.log.directory.identity import read_identity

    home = Place(held.filesystem, held.path)
    owner = home.identity()
    known = {} if owner is None else dict(owner.directories)
    names = {lost, os.path.abspath(lost)}
    found = [each for each, path in known.items() if {each, path} & names]
    if owner is None or not found:
        paths = ", ".join(f"{path} ({each})" for each, path in sorted(known.items(), key=lambda item: item[1]))
        raise Failure(
            "NO_SUCH_DIRECTORY",
            f"{held.path} knows no data directory {lost}",
            f"it knows {paths}" if paths else "give the directory with the broker's metadata",
            ExitCode.NOT_FOUND,
        )
    (lost_id,) = found
    if lost_id == owner.directory_id:
        raise Failure("NOT_LOST", f"{lost} is {held.path} itself", "", ExitCode.USAGE)
    there = read_identity(held.filesystem, known[lost_id])
    if there is not None and there.directory_id == lost_id:
        raise Failure(
            "NOT_LOST",
            f"{known[lost_id]} is there, with its data",
            "name it in log.dirs; if its partitions were moved to others, rename it first",
        )
    places = {each: Place(held.filesystem, path) for each, path in known.items()}
    lost_one = places.pop(lost_id)
    words = lost_properties(lost_one, lost_id, home, places.values(), _partitions(held))
    if words is not None:
        raise Failure("NOT_LOST", words, "to give up its records nevertheless, move the directory away first")
    return owner, lost_id


def _partitions(held: "DataDirectory") -> "Known | None":
    """The partitions in the metadata of the home; None without metadata."""
    from cordwood.broker.storage.lost_properties import known_partitions
    from cordwood.broker.storage.storage import METADATA_FILE

    return known_partitions(f"{held.path}/{METADATA_FILE}")


def _nowhere_else(held: "DataDirectory", others: Iterable[str]) -> "list[TopicPartition] | None":
    """The partitions of the metadata that have no log in these data directories; None without metadata."""
    from cordwood.broker.storage.lost_properties import nowhere_in
    from cordwood.log.directory.directory_set import Place

    known = _partitions(held)
    return None if known is None else nowhere_in((Place(held.filesystem, path) for path in others), known)
