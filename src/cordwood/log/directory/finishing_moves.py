"""Finishes or undoes, at a start, the moves of logs between data directories that a crash has interrupted.

A copy without a readable note is unfinished and is removed. A copy whose log is in one of the directories was never
switched to and is removed. Moves that are undone so begin anew. A copy whose log is nowhere is the log: the old
directory was condemned, and the copy gets the partition's name. If a directory is missing, the log may be there: then
such a copy is left alone.
"""

from collections.abc import Sequence
from contextlib import suppress
from typing import Generic, NamedTuple, Protocol, TypeVar

from cordwood.log.directory.moving import remove_future
from cordwood.log.directory.set_aside import read_note
from cordwood.model.errors import StorageFailure
from cordwood.model.identifiers import TopicPartition
from cordwood.segments.filesystem import Filesystem
from cordwood.segments.future_name import future_part


class Place(Protocol):
    """A data directory that is locked and not opened yet."""

    @property
    def filesystem(self) -> Filesystem: ...

    @property
    def path(self) -> str: ...


P = TypeVar("P", bound=Place)


class Finished(NamedTuple, Generic[P]):
    """What a start makes of interrupted moves."""

    words: list[str]
    undone: dict[TopicPartition, P]
    """The targets of moves whose copies are removed: the moves begin anew."""


class _Copy(NamedTuple, Generic[P]):
    place: P
    path: str


class UnfinishedMoves(Generic[P]):
    """The copies that a start finds, and what becomes of each. `finish` carries that out."""

    def __init__(self, places: Sequence[P], *, all_present: bool) -> None:
        """Changes nothing. Raises StorageFailure if two copies could each be the log."""
        self._removed: list[_Copy[P]] = []
        self._named: list[tuple[_Copy[P], TopicPartition]] = []
        self._finished: Finished[P] = Finished([], {})
        copies: dict[TopicPartition, list[_Copy[P]]] = {}
        for place in places:
            for name in place.filesystem.list_directories(place.path):
                part = future_part(name)
                if part is None:
                    continue
                copy = _Copy(place, f"{place.path}/{name}")
                note = read_note(place.filesystem, copy.path)
                if note is not None:
                    copies.setdefault(note.partition, []).append(copy)
                    continue
                partition = None
                with suppress(ValueError):
                    partition = TopicPartition.parse(part)
                self._remove(copy, partition)
        for partition, found in sorted(copies.items()):
            if any(place.filesystem.exists(f"{place.path}/{partition}") for place in places):
                for copy in found:
                    self._remove(copy, partition)
            elif not all_present:
                self._finished.words.extend(
                    f"{path} is left alone: {partition} may be in a directory that is missing" for _, path in found
                )
            elif len(found) > 1:
                raise StorageFailure(
                    f"{partition} has no directory, and {len(found)} copies: {', '.join(path for _, path in found)}. "
                    "Nothing was changed: rename the copies that are not the log"
                )
            else:
                self._named.append((found[0], partition))
                self._finished.words.append(
                    f"{partition} is in {found[0].place.path} now: a crash came in the middle of its move"
                )

    def _remove(self, copy: _Copy[P], partition: TopicPartition | None) -> None:
        self._removed.append(copy)
        self._finished.words.append(f"{copy.path} is removed: a move to it had not ended")
        if partition is not None:
            self._finished.undone[partition] = copy.place

    def finish(self) -> Finished[P]:
        """Leaves each partition with one log, durably."""
        for place, path in self._removed:
            remove_future(place.filesystem, path)
        for (place, path), partition in self._named:
            place.filesystem.rename(path, f"{place.path}/{partition}")
            place.filesystem.sync_directory(place.path)
        return self._finished
