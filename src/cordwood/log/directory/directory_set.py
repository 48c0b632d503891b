"""Recognises several data directories of a broker: the home, the others, and those that are missing.

The home has the broker's metadata, and a list of all directories by their ids. So directories can be given in another
order or under other paths, one can be added, and a start notices if one is missing. The partitions of a missing
directory must not begin anew at offset 0 as if they had never had records.
"""

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

from cordwood.log.directory.identity import (
    PROPERTIES_FILE,
    Identity,
    check_owner,
    keep_copy,
    read_identity,
    read_owner,
    write_identity,
)
from cordwood.model.errors import StorageFailure
from cordwood.segments.filesystem import Filesystem


class Place(NamedTuple):
    """A data directory on its filesystem."""

    filesystem: Filesystem
    path: str

    def identity(self) -> Identity | None:
        """The owner of the data. A home that lost its properties takes it from their copy."""
        return read_owner(self.filesystem, self.path)


class DirectorySet(NamedTuple):
    home: int
    """The number of the home among the given directories."""
    missing: dict[str, str]
    """Directories that the home knows and that were not given, or are empty now: the last path of each, by id."""
    home_missing: bool
    """True if directories of the broker were given, and none of them is the home."""
    home_path: str = ""
    """The last path of a missing home; empty if that is unknown."""
    others_homes: Mapping[str, str] = MappingProxyType({})
    """Given directories that name another home than the given one: the last path of that home, by their path."""
    perhaps_begun: bool = False
    """True if the first start on the directories may have been interrupted before it wrote the properties of the home;
    `home` is then that directory. The metadata decides: it knows no topic yet."""

    @property
    def complete(self) -> bool:
        return not self.missing and not self.home_missing


def check_apart(paths: Sequence[str]) -> None:
    """Raises StorageFailure if a directory is named twice, or lies in another one. The paths are absolute."""
    for number, path in enumerate(paths):
        for other in paths[:number]:
            if path == other:
                raise StorageFailure(f"log.dirs names {path} twice")
            inner, outer = (path, other) if len(path) > len(other) else (other, path)
            if inner.startswith(f"{outer.rstrip('/')}/"):
                raise StorageFailure(f"log.dirs names {inner}, which lies in {outer}: give directories side by side")


def look_at(places: Sequence[Place]) -> DirectorySet:
    """Reads the owners of the directories. Raises StorageFailure if they cannot be those of one broker."""
    found = [place.identity() for place in places]
    homes = [number for number, owner in enumerate(found) if owner is not None and not owner.home_id]
    if len(homes) > 1:
        homes = _last_home(found, homes) or homes
    if len(homes) > 1:
        first, second = (places[number].path for number in homes[:2])
        raise StorageFailure(
            f"{first} and {second} have been data directories on their own, each with metadata: their partitions "
            "cannot be served as those of one broker. Nothing was changed. Give one of them, and empty directories "
            "beside it"
        )
    by_id: dict[str, str] = {}
    for place, owner in zip(places, found, strict=True):
        if owner is None or not owner.directory_id:
            continue
        if owner.directory_id in by_id:
            raise StorageFailure(
                f"{place.path} is a copy of {by_id[owner.directory_id]}: both have the directory.id "
                f"{owner.directory_id} in {PROPERTIES_FILE}. Nothing was changed. Give one of them"
            )
        by_id[owner.directory_id] = place.path
    if not homes:
        others = [owner for owner in found if owner is not None]
        begun = _begun_home(places, found)
        home_path = next((each.home_path for each in others if each.home_path), "")
        return DirectorySet(begun or 0, {}, bool(others), home_path, perhaps_begun=begun is not None)
    home = found[homes[0]]
    assert home is not None
    former = {owner.directory_id for owner in found if owner is not None and owner is not home and not owner.home_id}
    missing = {each: path for each, path in home.directories.items() if each not in by_id}
    others_homes = {
        place.path: owner.home_path
        for place, owner in zip(places, found, strict=True)
        if owner is not None and owner.home_id and owner.home_id not in (home.directory_id, *former)
    }
    return DirectorySet(homes[0], missing, False, others_homes=others_homes)


def _last_home(found: Sequence[Identity | None], homes: Sequence[int]) -> list[int]:
    """The number of the home that all other homes name as one of their directories, and that names none of them. A node
    of a cluster that was started without its home made that directory its home; the others are former homes."""
    owners = {number: owner for number in homes if (owner := found[number]) is not None}
    return [
        number
        for number, owner in owners.items()
        if all(
            other[:2] == owner[:2]
            and owner.directory_id in other.directories
            and other.directory_id not in owner.directories
            for each, other in owners.items()
            if each != number
        )
    ]


def _begun_home(places: Sequence[Place], found: Sequence[Identity | None]) -> int | None:
    """The number of the directory that all others name as their home, and that has no properties, if there is no log in
    any of them. A claim writes the home last: an interrupted claim leaves the directories so."""
    homes = {owner.home_path for owner in found if owner is not None}
    numbers = [number for number, place in enumerate(places) if found[number] is None and homes == {place.path}]
    if not numbers or any(place.filesystem.list_directories(place.path) for place in places):
        return None
    return numbers[0]


class Claim:
    """Takes the directories for their owner; the first is the home."""

    def __init__(self, places: Sequence[Place], identity: Identity, new_id: Callable[[], str]) -> None:
        """Plans the claim, and changes nothing. Raises StorageFailure if another node owns a directory."""
        self._places = places
        found = [place.identity() for place in places]
        for place, owner in zip(places, found, strict=True):
            check_owner(place.path, owner, identity)
        ids = [(owner.directory_id if owner is not None else "") or new_id() for owner in found]
        alone = Identity(identity.cluster_id, identity.node_id)
        self._wanted = [
            alone._replace(
                storage_id=identity.storage_id,
                directory_id=ids[0],
                directories=dict(zip(ids, (place.path for place in places), strict=True)) if len(places) > 1 else {},
            ),
            *(alone._replace(directory_id=each, home_id=ids[0], home_path=places[0].path) for each in ids[1:]),
        ]

    def write(self) -> None:
        """Writes the names: the home names a directory durably before the first log is made in it, and names missing
        directories no longer."""
        # The home is written last: it names no directory that does not name its owner.
        for place, own in reversed(list(zip(self._places, self._wanted, strict=True))):
            if read_identity(place.filesystem, place.path) != own:
                write_identity(place.filesystem, place.path, own)
            else:
                keep_copy(place.filesystem, place.path, own)
