"""Directories of partitions that were renamed within their topic: the number in `partition.metadata` is right.

The topic's id is the same in all directories of a topic, so it does not tell partition 0 from partition 1. Served under
another number, records would be in a partition that their keys do not lead to, and offsets would be given out twice.

All misnamed directories are set aside first, so that swapped ones find their names free. Then each gets its own name. A
directory whose name is taken, as after a copy, stays set aside. After a crash in between the next start goes on.
"""

from collections.abc import Iterable
from contextlib import suppress

from cordwood.log.directory.set_aside import read_note, remove_note, set_aside
from cordwood.model.identifiers import TopicPartition
from cordwood.segments.damaged import DamagedCheckpoint
from cordwood.segments.filesystem import Filesystem
from cordwood.segments.partition_metadata import FILE_NAME, PartitionMetadata, decode_partition_metadata
from cordwood.segments.set_aside import Note, set_aside_part

_RENAMED = "it was renamed to"


def straighten_names(filesystem: Filesystem, path: str, names: Iterable[str]) -> list[str]:
    """Gives misnamed directories their names back, durably; returns the findings and repairs."""
    aside: list[tuple[str, Note]] = []
    for name in names:
        directory = f"{path}/{name}"
        if set_aside_part(name) is not None:
            note = read_note(filesystem, directory)
            if note is not None and note.reason.startswith(_RENAMED):
                aside.append((directory, note))
            continue
        note = _note(filesystem, path, name)
        if note is not None:
            aside.append((set_aside(filesystem, directory, note, before_moving=lambda: None), note))
    problems = []
    for directory, note in aside:
        own = f"{path}/{note.partition}"
        if filesystem.exists(own):
            problems.append(f"{directory} is a copy of {own}, or was renamed while there was one: {note.reason}")
            continue
        filesystem.rename(directory, own)
        filesystem.sync_directory(path)
        remove_note(filesystem, own)
        problems.append(f"{own} has its name again: {note.reason}, and its {FILE_NAME} names {note.partition}")
    return problems


def straightened(filesystem: Filesystem, path: str) -> dict[TopicPartition, str]:
    """The path of each partition's directory, by the name that `straighten_names` is going to give it. Changes
    nothing."""
    named: dict[TopicPartition, str] = {}
    misnamed: list[tuple[TopicPartition, str]] = []
    for name in filesystem.list_directories(path):
        directory = f"{path}/{name}"
        if set_aside_part(name) is not None:
            note = read_note(filesystem, directory)
            if note is not None and note.reason.startswith(_RENAMED):
                misnamed.append((note.partition, directory))
        elif (note := _note(filesystem, path, name)) is not None:
            misnamed.append((note.partition, directory))
        else:
            with suppress(ValueError):
                named[TopicPartition.parse(name)] = directory
    for partition, directory in misnamed:
        named.setdefault(partition, directory)
    return named


def _note(filesystem: Filesystem, path: str, name: str) -> Note | None:
    """The note of a misnamed directory; None if it is no partition's, has the right name, or does not say."""
    try:
        partition = TopicPartition.parse(name)
    except ValueError:
        return None
    metadata = _read(filesystem, f"{path}/{name}")
    if metadata is None or metadata.partition is None or metadata.partition == partition.partition:
        return None
    return Note(TopicPartition(partition.topic, metadata.partition), metadata.topic_id, f"{_RENAMED} {name}", 0)


def _read(filesystem: Filesystem, directory: str) -> PartitionMetadata | None:
    try:
        return decode_partition_metadata(filesystem.read_bytes(f"{directory}/{FILE_NAME}"))
    except (FileNotFoundError, DamagedCheckpoint):
        return None
