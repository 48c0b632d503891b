"""Directories that were set aside while their partitions are filled anew: kept until the partitions are in sync."""

from cordwood.log.directory.data_directory import DataDirectory
from cordwood.log.directory.set_aside import read_note
from cordwood.log.upkeep.retention import condemn_directory
from cordwood.segments.set_aside import Note


def replaced_directories(directory: DataDirectory) -> list[tuple[Note, str]]:
    """The notes and paths of the directories that wait for their partitions."""
    found = []
    for path in directory.on_disk.set_aside_directories:
        note = read_note(directory.filesystem, path)
        if note is not None and note.until_in_sync:
            found.append((note, path))
    return found


def remove_replaced(directory: DataDirectory, path: str) -> None:
    """Removes a replaced directory, in any thread. After a crash in between the next start finishes it."""
    condemned = condemn_directory(directory.filesystem, path)
    if condemned is not None:
        directory.filesystem.sync_directory(directory.path)
        directory.filesystem.remove_tree(condemned)
