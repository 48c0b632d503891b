"""Finishes or undoes, at a start, the moves of logs between data directories that a crash has interrupted.

A copy without a note is unfinished and is removed. A copy with a damaged note may be the log: it is left alone, and the
start is refused if no directory has the partition's name. A copy whose log is in one of the directories was never
switched to and is removed. Moves that are undone so begin anew. A copy whose log is nowhere is the log: the old
directory was condemned, and the copy gets the partition's name. If a directory is missing, the log may be there: then
such a copy is left alone.

A directory that has the partition's name is its log only if files of a log are in it, with the topic id of the copy's
note. In doubt the copy is set aside: it may be all that is left of acknowledged records.
"""

from collections.abc import Sequence
from contextlib import suppress
from typing import Generic, NamedTuple, Protocol, TypeVar

from cordwood.log.directory.moving import remove_future
from cordwood.log.directory.set_aside import read_note, set_aside
from cordwood.log.directory.strays import Known, read_topic_id
from cordwood.log.opening.partition_files import holds_a_log
from cordwood.log.upkeep.retention import condemned_part
from cordwood.model.errors import StorageFailure
from cordwood.model.identifiers import TopicId, TopicPartition
from cordwood.segments.filesystem import Filesystem
from cordwood.segments.names import future_part, parse_segment_file
from cordwood.segments.set_aside import LONGEST_PART, NOTE_FILE, Note


class Place(Protocol):
    """A data directory that is locked and not opened yet."""

    @property
    def filesystem(self) -> Filesystem: ...

    @property
    def path(self) -> str: ...


P = TypeVar("P", bound=Place)


class Finished(NamedTuple, Generic[P]):
    """The consequences of interrupted moves for a start."""

    words: list[str]
    undone: dict[TopicPartition, P]
    """The targets of moves whose copies are removed: the moves begin anew."""


class _Copy(NamedTuple, Generic[P]):
    place: P
    path: str
    note: Note

    @property
    def name(self) -> str:
        """The path of the partition's directory, if the copy is the log."""
        return f"{self.place.path}/{self.note.partition}"


class UnfinishedMoves(Generic[P]):
    """The copies that a start finds, and the decision about each. `finish` carries the decisions out."""

    def __init__(self, places: Sequence[P], *, all_present: bool, known: Known | None = None) -> None:
        """Decides, and changes nothing. Raises StorageFailure if it is unclear which copy is the log, or if its name is
        taken. `known`: the topics of the metadata; None if they are not known yet."""
        self._places = places
        self._all_present = all_present
        self._known = known
        self._removed: list[tuple[P, str]] = []
        self._set_aside: list[_Copy[P]] = []
        self._named: list[_Copy[P]] = []
        self._finished: Finished[P] = Finished([], {})
        copies: dict[TopicPartition, list[_Copy[P]]] = {}
        for place in places:
            for name in place.filesystem.list_directories(place.path):
                part = future_part(name)
                if part is None:
                    continue
                path = f"{place.path}/{name}"
                note = read_note(place.filesystem, path)
                if note is not None:
                    copies.setdefault(note.partition, []).append(_Copy(place, path, note))
                else:
                    self._decide_without_note(place, path, part)
        for partition, found in sorted(copies.items()):
            logs = self._logs(partition)
            nowhere = [copy for copy in found if not self._has_log(copy, logs)]
            if not nowhere:
                continue
            if not all_present:
                self._finished.words.extend(
                    f"{copy.path} is left alone: {partition} may be in a directory that is missing" for copy in nowhere
                )
            elif len(nowhere) > 1:
                raise StorageFailure(
                    f"{partition} has no directory, and {len(nowhere)} copies: "
                    f"{', '.join(copy.path for copy in nowhere)}. Nothing was changed: rename the copies that are not "
                    "the log"
                )
            else:
                self._name(nowhere[0])

    def _decide_without_note(self, place: P, path: str, part: str) -> None:
        """Decides on a copy without a readable note: `part` of its partition's name is all that is known."""
        partition = None
        with suppress(ValueError):
            partition = TopicPartition.parse(part)
        if not place.filesystem.exists(f"{path}/{NOTE_FILE}"):
            self._remove(place, path, partition)
        elif partition is None or self._logs(partition) or not self._all_present:
            self._finished.words.append(
                f"{path} is left alone, since its {NOTE_FILE} is damaged: move it out of the data directory if {part} "
                "has all its records"
            )
        else:
            raise StorageFailure(
                f"{path} may be the log of {part}, and its {NOTE_FILE} is damaged. No other directory has this "
                f"partition, and nothing was changed: restore that file, or move {path} out of the data directory to "
                "start without its records"
            )

    def _logs(self, partition: TopicPartition) -> dict[str, TopicId | None]:
        """The topic ids of the directories that have the partition's name and files of a log, by path."""
        return {
            path: read_topic_id(place.filesystem, path)
            for place in self._places
            if _has_files_of_log(place.filesystem, path := f"{place.path}/{partition}")
        }

    def _has_log(self, copy: _Copy[P], logs: dict[str, TopicId | None]) -> bool:
        """Decides on a copy whose log is in one of these directories, or may be. False if its log is nowhere."""
        topic_id = copy.note.topic_id
        unsure = [path for path, found in logs.items() if found != topic_id and None in (found, topic_id)]
        if topic_id not in logs.values():
            for path in unsure[:1]:
                self._put_aside(copy, f"whether {path} is its log cannot be told by the topic id")
            return bool(unsure)
        condemned = self._condemned(copy.note)
        if condemned:
            # An earlier move may have left it, or this one: then the copy is the log.
            self._put_aside(copy, f"it is a copy of a log that was there as well as {condemned[0]}")
            self._finished.undone[copy.note.partition] = copy.place
        else:
            self._remove(copy.place, copy.path, copy.note.partition)
        return True

    def _condemned(self, note: Note) -> list[str]:
        """The condemned directories that may have been the partition's."""
        part = str(note.partition)[:LONGEST_PART]
        return [
            path
            for place in self._places
            for name in place.filesystem.list_directories(place.path)
            if condemned_part(name) == part
            and read_topic_id(place.filesystem, path := f"{place.path}/{name}") in (None, note.topic_id)
        ]

    def _name(self, copy: _Copy[P]) -> None:
        """Gives a copy, which is the log, the partition's name."""
        partition, topic_id = copy.note.partition, copy.note.topic_id
        filesystem = copy.place.filesystem
        if filesystem.list(copy.name):
            served = self._known is not None and self._known.topic_id(partition) == topic_id
            if served or not _has_files_of_log(filesystem, copy.name):
                raise StorageFailure(
                    f"{copy.path} is the log of {partition}, and {copy.name}, which is none of its logs, has its name. "
                    f"Nothing was changed: move {copy.name} away, out of the data directory"
                )
            self._put_aside(copy, f"{copy.name} has its name, and another topic id")
            return
        self._named.append(copy)
        self._finished.words.append(f"{partition} is in {copy.place.path} now: a crash came in the middle of its move")

    def _put_aside(self, copy: _Copy[P], why: str) -> None:
        self._set_aside.append(copy._replace(note=copy.note._replace(reason=why)))
        self._finished.words.append(f"{copy.path} is set aside: {why}")

    def _remove(self, place: P, path: str, partition: TopicPartition | None) -> None:
        self._removed.append((place, path))
        self._finished.words.append(f"{path} is removed: a move to it had not ended")
        if partition is not None:
            self._finished.undone[partition] = place

    def finish(self) -> Finished[P]:
        """Leaves each partition with one log, durably."""
        for place, path in self._removed:
            remove_future(place.filesystem, path)
        for copy in self._set_aside:
            named = str(copy.note.partition)
            set_aside(copy.place.filesystem, copy.path, copy.note, before_moving=lambda: None, named=named)
        for copy in self._named:
            copy.place.filesystem.rename(copy.path, copy.name)
            copy.place.filesystem.sync_directory(copy.place.path)
        return self._finished


def _has_files_of_log(filesystem: Filesystem, directory: str) -> bool:
    names = filesystem.list(directory)
    return any(map(parse_segment_file, names)) or (bool(names) and holds_a_log(filesystem, directory))
