"""A data directory that a broker alone lost for good: what was in it, and the note that its records are given up."""

import os
from collections.abc import Iterable
from typing import NamedTuple

from cordwood.broker.storage import accepted_losses
from cordwood.broker.storage.lost_properties import Known, known_partitions, lost_properties, nowhere_in
from cordwood.broker.storage.storage import METADATA_FILE
from cordwood.log.directory.data_directory import DataDirectory
from cordwood.log.directory.directory_set import Place
from cordwood.log.directory.identity import Identity, read_identity, write_identity
from cordwood.model.failure import ExitCode, Failure
from cordwood.model.identifiers import INTERNAL_TOPICS, TopicPartition


class LostDirectory(NamedTuple):
    path: str
    home: str
    """The directory with the metadata."""
    partitions: list[TopicPartition] | None
    """The partitions that are in no other directory; None: no metadata tells."""
    left: Identity
    """The identity of the home without the lost directory."""

    @property
    def in_words(self) -> str:
        home, lost, partitions = self.home, self.path, self.partitions
        if partitions is None:
            return f"Which partitions were in {lost} cannot be told: {home} has no metadata that can be read."
        if not partitions:
            return f"All partitions are in other directories: no records were in {lost} alone."
        # The text names only some partitions: those of users come before those of the broker's own topics.
        users_first = sorted(partitions, key=lambda partition: partition.topic in INTERNAL_TOPICS)
        names = accepted_losses.in_words(list(map(str, users_first)))
        return (
            f"{names}: in none of the other directories. They were in {lost}, or never had records. Which "
            f"offsets they had, only {lost} knew."
        )


def lost_directory(held: DataDirectory, lost: str) -> LostDirectory:
    """The lost directory that a path or an id names. Raises Failure."""
    owner, lost_id = _found(held, lost)
    others = {each: at for each, at in owner.directories.items() if each != lost_id}
    partitions = _nowhere_else(held, others.values())
    return LostDirectory(owner.directories[lost_id], held.path, partitions, owner._replace(directories=others))


def give_up(held: DataDirectory, lost: LostDirectory) -> None:
    """Notes that the records are given up: the next start begins their partitions anew."""
    if lost.partitions:
        accepted_losses.note(held.filesystem, held.path, lost.path, lost.partitions)
    write_identity(held.filesystem, held.path, lost.left)


def _found(held: DataDirectory, lost: str) -> tuple[Identity, str]:
    """The identity of the home, and the id of the lost directory. Raises Failure."""
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


def _partitions(held: DataDirectory) -> Known | None:
    """The partitions in the metadata of the home; None without metadata."""
    return known_partitions(f"{held.path}/{METADATA_FILE}")


def _nowhere_else(held: DataDirectory, others: Iterable[str]) -> list[TopicPartition] | None:
    """The partitions of the metadata that have no log in these data directories; None without metadata."""
    known = _partitions(held)
    return None if known is None else nowhere_in((Place(held.filesystem, path) for path in others), known)
