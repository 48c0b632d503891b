"""Sets aside directories that the metadata does not know: the directory is renamed, with a note of its offsets.

Nothing is erased or overwritten. First the note is durable in the directory, then the directory gets its new name, then
that name is durable: after a crash in between the directory has its old name, and the next start begins again. A
directory that is put back under a partition's name still has its note, and opening the data directory takes the offsets
from it.
"""

from collections.abc import Callable, Iterator

from cordwood.segments.damaged import DamagedCheckpoint
from cordwood.segments.filesystem import Filesystem, remove_if_there
from cordwood.segments.set_aside import NOTE_FILE, Note, decode_note, encode_note, set_aside_name


def set_aside(
    filesystem: Filesystem, directory: str, note: Note, *, before_moving: Callable[[], None], named: str = ""
) -> str:
    """Renames the directory, durably; returns the new path. On a full disk the directory keeps its name.

    Calls `before_moving` when the note is durable. `named`: the name from which the new one is made, if not the
    directory's.
    """
    write_note(filesystem, directory, note)
    before_moving()
    return move_aside(filesystem, directory, named)


def write_note(filesystem: Filesystem, directory: str, note: Note) -> None:
    """Writes the note, durably. Offsets that it lacks are taken from an earlier note."""
    earlier = read_note(filesystem, directory)
    if earlier is not None:
        # A crash came between the note and the new name. The checkpoints may have forgotten the partition since.
        note = note._replace(
            recovery_point=_known(note.recovery_point, earlier.recovery_point),
            log_start_offset=_known(note.log_start_offset, earlier.log_start_offset),
            cleaned_to=_known(note.cleaned_to, earlier.cleaned_to),
        )
    filesystem.replace(f"{directory}/{NOTE_FILE}", encode_note(note))


def move_aside(filesystem: Filesystem, directory: str, named: str = "") -> str:
    """Renames the directory, durably; returns the new path. The note has to be in it, and no checkpoint may have the
    partition's offsets. `named`: as in `set_aside`."""
    parent, _, name = directory.rpartition("/")
    path = next(path for path in _names(parent, named or name) if not filesystem.exists(path))
    filesystem.rename(directory, path)
    filesystem.sync_directory(parent)
    return path


def read_note(filesystem: Filesystem, directory: str) -> Note | None:
    """The note in a directory; None if it is missing or damaged."""
    try:
        return decode_note(filesystem.read_bytes(f"{directory}/{NOTE_FILE}"))
    except (FileNotFoundError, DamagedCheckpoint):
        return None


def remove_note(filesystem: Filesystem, directory: str) -> None:
    """Removes the note, durably: a note that a power cut brought back would raise a recovery point that a cut had
    lowered since, and the records that were cut would count as lost."""
    remove_if_there(filesystem, f"{directory}/{NOTE_FILE}")
    filesystem.sync_directory(directory)


def _names(parent: str, name: str) -> Iterator[str]:
    number = 0
    while True:
        yield f"{parent}/{set_aside_name(name, number)}"
        number += 1


def _known(newer: int | None, earlier: int | None) -> int | None:
    return earlier if newer is None else newer
