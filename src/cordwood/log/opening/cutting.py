"""Takes bytes off the end of a log that recovery found invalid, and keeps those that hold whole batches.

A torn tail holds nothing that was acknowledged, and is cut off. But an invalid batch may have whole batches behind it:
the disk altered one byte of a batch above the recovery point, or the recovery point was lost. Such batches cannot be
served, because the log goes on at their offsets; and they may have been acknowledged, so their bytes are kept beside
the log, in a file that the report names: `00000000000000000000.log.cut-6120`, where 6120 is the position of the cut.
Only on a full disk is the end of a file cut without a copy, and the report says so: a broker must start on a full disk,
too.
"""

from typing import Final

from cordwood.log.parts.holes import Hole, find_batch, read_whole_batch
from cordwood.log.parts.partition_directory import PartitionDirectory
from cordwood.log.parts.report import Cut, RecoveryReport
from cordwood.log.parts.segment import SEGMENT_SUFFIXES, Segment
from cordwood.model.errors import DiskFull
from cordwood.records.batch import HEADER_SIZE, MAGIC, read_header
from cordwood.segments.filesystem import File, Filesystem, remove_if_there
from cordwood.segments.names import kept_cut
from cordwood.segments.offset_index import MAX_RELATIVE_OFFSET

_COPIED_AT_ONCE: Final = 1024 * 1024


def cut_file(
    directory: PartitionDirectory,
    segment: Segment,
    position: int,
    end_offset: int,
    reason: str,
    report: RecoveryReport,
) -> None:
    """Cuts the file at this position."""
    file = segment.file
    kept_in = None
    if _has_whole_batch(file, position, end_offset):
        kept_in = _copied(directory, file, position)
        if kept_in is None:
            reason += "; whole batches in it are lost, because the disk is too full to keep them"
    _note(directory, file, position, end_offset, reason, report, kept_in)
    file.truncate(position)


def cut_behind_hole(
    directory: PartitionDirectory, segment: Segment, holes: list[Hole], end_offset: int, report: RecoveryReport
) -> None:
    """Cuts valid batches behind a hole that reaches the recovery point: they follow an invalid batch."""
    hole = holes[-1]
    found = find_batch(segment.file, hole.position, end_offset, end_offset + MAX_RELATIVE_OFFSET)
    if found is not None:
        cut_file(directory, segment, found[0], end_offset, "it follows a damaged batch", report)
        holes[-1] = hole._replace(end_position=found[0])


def cut_segments(
    directory: PartitionDirectory, segments: tuple[Segment, ...], end_offset: int, reason: str, report: RecoveryReport
) -> None:
    """Takes segments out of the log that do not follow its end, the last segment first."""
    filesystem = directory.filesystem
    for segment in reversed(segments):
        file = segment.file
        kept_in = None
        if _has_whole_batch(file, 0, segment.base_offset):
            kept_in = _free_name(filesystem, file.path, 0)
        _note(directory, file, 0, end_offset, reason, report, kept_in)
        file.close()
        if kept_in is not None:
            filesystem.rename(file.path, kept_in)
        for suffix in SEGMENT_SUFFIXES:
            remove_if_there(filesystem, segment.path(suffix))
    directory.sync_names()


def _note(
    directory: PartitionDirectory,
    file: File,
    position: int,
    end_offset: int,
    reason: str,
    report: RecoveryReport,
    kept_in: str | None,
) -> None:
    claimed = _claimed_end(file, position, end_offset)
    cut = Cut(directory.partition, file.path, position, file.size - position, end_offset, claimed, reason, kept_in)
    report.cuts.append(cut)


def _has_whole_batch(file: File, position: int, first_offset: int) -> bool:
    """True if the bytes from this position on hold a whole batch with this offset or a later one."""
    bounds = first_offset, first_offset + MAX_RELATIVE_OFFSET
    return read_whole_batch(file, position) is not None or find_batch(file, position, *bounds) is not None


def _copied(directory: PartitionDirectory, file: File, position: int) -> str | None:
    """The file to which the bytes from this position on were copied, durably; None on a full disk."""
    filesystem = directory.filesystem
    path = _free_name(filesystem, file.path, position)
    copy = filesystem.open(path, create=True)
    try:
        for start in range(position, file.size, _COPIED_AT_ONCE):
            copy.append(file.read(start, _COPIED_AT_ONCE))
        copy.sync()
    except DiskFull:
        filesystem.remove(path)
        return None
    finally:
        copy.close()
    directory.sync_names()
    return path


def _free_name(filesystem: Filesystem, path: str, position: int) -> str:
    nth = 1
    while filesystem.exists(kept_cut(path, position, nth)):
        nth += 1
    return kept_cut(path, position, nth)


def _claimed_end(file: File, position: int, offset: int) -> int | None:
    """The end offset that the headers from this position on claim; None if the first header is unreadable."""
    claimed: int | None = None
    while True:
        data = file.read(position, HEADER_SIZE)
        if len(data) < HEADER_SIZE:
            return claimed
        header = read_header(data)
        plausible = header.magic == MAGIC and offset <= header.base_offset <= offset + MAX_RELATIVE_OFFSET
        if not plausible or header.last_offset_delta < 0 or header.size < HEADER_SIZE:
            return claimed
        claimed = offset = header.next_offset
        position += header.size
