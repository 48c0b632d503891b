"""Puts rewritten segments in the place of old ones, atomically: the last step of a compaction.

Compaction, in another process, writes `<base>.log.cleaned` and its indexes and syncs them. The manifest, one small file
that names the old and the new segments, is the commit: a crash before it leaves the old segments; after a crash behind
it the next start finishes the replacement. Records keep their offsets, and nothing above the recovery point is ever
replaced.
"""

from collections.abc import Iterable

from cordwood.log.parts.offsets import LogOffsets
from cordwood.log.parts.saved_state import SavedState
from cordwood.log.parts.segment import SEGMENT_SUFFIXES, Deletion, Segment
from cordwood.log.parts.segments import LogSegments
from cordwood.segments.abort_witness import witness_of
from cordwood.segments.checkpoint_text import decode_lines, encode_lines, number
from cordwood.segments.damaged import DamagedCheckpoint
from cordwood.segments.filesystem import Filesystem
from cordwood.segments.names import Stage, Suffix, segment_file

MANIFEST = "replacement.swap"
_OLD, _NEW = "old", "new"


def replace_segments(
    segments: LogSegments, offsets: LogOffsets, saved: SavedState, old: list[int], new: list[int]
) -> None:
    """Puts the `.cleaned` segments with these base offsets in the place of the old ones."""
    places = {segment.base_offset: place for place, segment in enumerate(segments)}
    assert old, "nothing to replace"
    first, last = places[old[0]], places[old[-1]]
    replaced = segments[first : last + 1]
    assert old == [segment.base_offset for segment in replaced], "old segments must be neighbours"
    assert replaced[-1] is not segments.active, "the active segment cannot be replaced"
    end_offset = segments.end_of(last)
    assert end_offset <= offsets.recovery_point, "only what is below the recovery point can be replaced"
    assert all(old[0] <= base_offset < end_offset for base_offset in new), (old, new)
    filesystem, directory = segments.directory.filesystem, segments.directory.path
    assert not segments.replacing, "another replacement is not finished"
    segments.replacing = True
    try:
        filesystem.replace(f"{directory}/{MANIFEST}", _encode(old, new))
        _give_up_old_deletions(segments, old)
        finish_replacement(filesystem, directory)
    finally:
        segments.replacing = filesystem.exists(f"{directory}/{MANIFEST}")
    for segment in replaced:
        segments.loaded_indexes.forget(segment)
        segment.file.path = segment_file(directory, segment.base_offset, Suffix.LOG, Stage.DELETED)
        paths = [segment_file(directory, segment.base_offset, suffix, Stage.DELETED) for suffix in SEGMENT_SUFFIXES]
        segments.deletions.append(Deletion(None, segment.file, [path for path in paths if filesystem.exists(path)]))
    rewritten = [Segment.existing(filesystem, directory, base_offset) for base_offset in sorted(new)]
    for segment in rewritten:
        # Until this is saved, the witness describes the old segments, and a start rebuilds the indexes.
        path = segment.path(Suffix.TXN_INDEX)
        segment.witnessed = witness_of(filesystem.read_bytes(path) if filesystem.exists(path) else b"")
    if any(each.witnessed is not None and each.witnessed.entries for each in (*replaced, *rewritten)):
        saved.witness_due = saved.checkpoint_due = True
    segments.replace(replaced, rewritten)


def finish_replacement(filesystem: Filesystem, directory: str) -> None:
    """Takes all steps after the manifest. Each step can be repeated."""
    path = f"{directory}/{MANIFEST}"
    try:
        old, new = _decode(filesystem.read_bytes(path))
    except DamagedCheckpoint:
        # The manifest is written atomically, so a damaged one never took effect.
        filesystem.remove(path)
        return
    # The log file is the last file of its segment to be renamed, so it shows the progress: a live log file beside its
    # `.cleaned` is the old one.
    for base_offset in old:
        cleaned = segment_file(directory, base_offset, Suffix.LOG, Stage.CLEANED)
        live = segment_file(directory, base_offset, Suffix.LOG)
        if filesystem.exists(live) and (base_offset not in new or filesystem.exists(cleaned)):
            _set_aside(filesystem, directory, base_offset)
    for base_offset in new:
        for suffix in reversed(SEGMENT_SUFFIXES):
            cleaned = segment_file(directory, base_offset, suffix, Stage.CLEANED)
            if filesystem.exists(cleaned):
                filesystem.rename(cleaned, segment_file(directory, base_offset, suffix))
    filesystem.sync_directory(directory)
    filesystem.remove(path)
    filesystem.sync_directory(directory)


def _give_up_old_deletions(segments: LogSegments, bases: list[int]) -> None:
    """Closes earlier deletions whose names the old segments are about to get: their readers must fail."""
    names = {segment_file(segments.directory.path, base_offset, Suffix.LOG, Stage.DELETED) for base_offset in bases}
    for deletion in segments.deletions:
        if deletion.file.path in names:
            deletion.file.close()
            deletion.file.path += ".gone"
    segments.deletions = [deletion for deletion in segments.deletions if not deletion.file.path.endswith(".gone")]


def _set_aside(filesystem: Filesystem, directory: str, base_offset: int) -> None:
    """Marks the old segment's files deleted."""
    for suffix in reversed(SEGMENT_SUFFIXES):
        path = segment_file(directory, base_offset, suffix)
        if filesystem.exists(path):
            filesystem.rename(path, segment_file(directory, base_offset, suffix, Stage.DELETED))


def _encode(old: Iterable[int], new: Iterable[int]) -> bytes:
    return encode_lines([*(f"{_OLD} {offset}" for offset in old), *(f"{_NEW} {offset}" for offset in new)])


def _decode(data: bytes) -> tuple[list[int], list[int]]:
    bases: dict[str, list[int]] = {_OLD: [], _NEW: []}
    for kind, offset in decode_lines(data, 2):
        if kind not in bases:
            raise DamagedCheckpoint(f"replacement: not an entry: {kind} {offset}")
        bases[kind].append(number(offset))
    return bases[_OLD], bases[_NEW]
