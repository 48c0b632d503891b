"""Sorts the files in a partition's directory into files in use and leftovers, when a log is opened."""

from typing import NamedTuple

from cordwood.log.rewriting.replacement import MANIFEST, finish_replacement
from cordwood.segments.abort_witness import FILE_NAME as ABORTS_FILE
from cordwood.segments.dropped_deletions import FILE_NAME as DROPPED_FILE
from cordwood.segments.filesystem import Filesystem
from cordwood.segments.leader_epochs import FILE_NAME as EPOCHS_FILE
from cordwood.segments.leader_epochs import WITNESS_FILE_NAME as EPOCHS_WITNESS
from cordwood.segments.names import Stage, Suffix, is_kept_cut, parse_segment_file, segment_file_name
from cordwood.segments.partition_metadata import FILE_NAME as METADATA_FILE
from cordwood.segments.set_aside import NOTE_FILE

_OTHERS = frozenset({EPOCHS_FILE, EPOCHS_WITNESS, MANIFEST, NOTE_FILE, ABORTS_FILE, DROPPED_FILE})


class PartitionFiles(NamedTuple):
    segments: list[int]
    """Base offsets of the log files, ascending."""
    snapshots: list[int]
    dropped: list[int]
    """Base offsets of segments that were dropped from the log's start, which is not saved yet: their files stay, and
    show until then that no other file is missing."""


def sort_out(
    filesystem: Filesystem, directory: str, names: list[str], saved_start: int | None = None
) -> PartitionFiles:
    """The segments and snapshots of a directory. Finishes an interrupted replacement, and removes leftovers.
    `saved_start`: the log start on disk; None: unknown."""
    if MANIFEST in names:
        finish_replacement(filesystem, directory)
        names = filesystem.list(directory)
    segments: list[int] = []
    snapshots: list[int] = []
    beside: list[tuple[int, str]] = []
    left_over: list[str] = []
    for name in names:
        parsed = parse_segment_file(name)
        if parsed is None:
            if _is_temporary(name):
                left_over.append(name)
        elif parsed.stage is not Stage.LIVE:
            left_over.append(name)
        elif parsed.suffix is Suffix.LOG:
            segments.append(parsed.base_offset)
        elif parsed.suffix is Suffix.SNAPSHOT:
            snapshots.append(parsed.base_offset)
        else:
            beside.append((parsed.base_offset, name))
    known = set(segments)
    left_over.extend(name for base_offset, name in beside if base_offset not in known)
    first = min(segments, default=0)
    dropped: set[int] = set()
    if saved_start is not None and saved_start < first:
        deleted = [parsed for name in left_over if (parsed := parse_segment_file(name)) and parsed.base_offset < first]
        dropped = {each.base_offset for each in deleted if each[1:] == (Suffix.LOG, Stage.DELETED)}
        kept = {segment_file_name(*each) for each in deleted if each.base_offset in dropped}
        left_over = [name for name in left_over if name not in kept]
    for name in left_over:
        filesystem.remove(f"{directory}/{name}")
    return PartitionFiles(sorted(segments), sorted(snapshots), sorted(dropped))


def holds_a_log(filesystem: Filesystem, directory: str) -> bool:
    """True if the directory may be a partition's: it is empty, or has only files of a log."""
    names = filesystem.list(directory)
    return METADATA_FILE in names or all(
        parse_segment_file(name) is not None or name in _OTHERS or _is_temporary(name) or is_kept_cut(name)
        for name in names
    )


def _is_temporary(name: str) -> bool:
    """True for the temporary file of a log's file that was being replaced. Other programs' files stay."""
    of, _, ending = name.rpartition(".")
    return ending == "tmp" and (of in _OTHERS or of == METADATA_FILE or parse_segment_file(of) is not None)
