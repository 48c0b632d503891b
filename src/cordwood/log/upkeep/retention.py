"""Removes segments beyond the limits of age and size or before the log's start, and whole logs.

Segments are removed whole, the oldest first. A segment stays if it reaches beyond limit_offset, or beyond the recovery
point that a crash goes back to: the state of its producers must be in a snapshot that is believed after a crash. Files
are renamed, and removed file.delete.delay.ms later, because slices of them may be on their way to sockets.

A new reason to remove a segment belongs into the forecast of `lag/data_loss.py`, too.
"""

from collections.abc import Callable

from cordwood.log.parts.offsets import LogOffsets
from cordwood.log.parts.replayed import Replayed
from cordwood.log.parts.report import DeletedSegment
from cordwood.log.parts.saved_state import SavedState
from cordwood.log.parts.segments import LogSegments
from cordwood.log.upkeep import rolling
from cordwood.model.moment import Moment
from cordwood.segments.filesystem import Filesystem
from cordwood.segments.set_aside import LONGEST_PART

DROPPED_AT_ONCE = 16
"""The most segments that one call drops: renaming the files of a segment takes some 0.1 ms, on a busy disk longer."""

CONDEMNED = "-delete"
"""The suffix of a directory whose log was deleted."""


def apply(
    segments: LogSegments,
    offsets: LogOffsets,
    replayed: Replayed,
    saved: SavedState,
    now: Moment,
    limit_offset: int,
) -> list[DeletedSegment]:
    """Drops segments beyond the topic's limits, at most DROPPED_AT_ONCE, but none that reaches beyond limit_offset."""
    limit_offset = min(limit_offset, saved.believed_snapshot(offsets) or 0)
    deleted: list[DeletedSegment] = []
    while segments.all and len(deleted) < DROPPED_AT_ONCE:
        end_offset = segments.end_of(0)
        oldest = segments[0]
        if end_offset > limit_offset or (not oldest.size and len(segments) == 1):
            break
        reason = _reason_to_delete(segments, offsets.start, now.wall_ms)
        if reason is None:
            break
        if len(segments) == 1:
            _begin_anew(segments, offsets, replayed, saved, now.wall_ms)
        deleted.append(DeletedSegment(oldest.base_offset, end_offset, oldest.size, reason))
        _delete_oldest(segments, offsets, replayed, saved, end_offset)
    return deleted


def _reason_to_delete(segments: LogSegments, log_start_offset: int, wall_ms: int) -> str | None:
    """The reason to delete the oldest segment; None if it stays."""
    settings, oldest = segments.settings, segments[0]
    if segments.end_of(0) <= log_start_offset and len(segments) > 1:
        return f"it is before the log's start at {log_start_offset}"
    if not settings.deletes:
        return None
    if not oldest.size:
        return "compaction left nothing in it"
    if settings.retention_bytes >= 0 and segments.size_bytes - oldest.size >= settings.retention_bytes:
        return f"the log is larger than retention.bytes={settings.retention_bytes}"
    if settings.retention_ms >= 0:
        # Right for the active segment of a log that is not ready, too: a checkpoint saves its largest timestamp.
        latest_ms = _latest_ms(segments)
        # Records without timestamps have no age: only their size can cause their removal.
        if 0 <= latest_ms < wall_ms - settings.retention_ms:
            return f"its records are older than retention.ms={settings.retention_ms}"
    return None


def _latest_ms(segments: LogSegments) -> int:
    """The latest timestamp of the oldest segment; -1 if its records have none."""
    interval_bytes = segments.settings.index_interval_bytes
    for place, segment in enumerate(segments):
        latest_ms = segment.max_timestamp_ms(segments.end_of(place), interval_bytes)
        # An unreadable segment counts as old as the next one. Else it would stay for ever, with all segments behind it.
        if latest_ms >= 0 or not segment.holes:
            return latest_ms
    return -1


def _begin_anew(
    segments: LogSegments, offsets: LogOffsets, replayed: Replayed, saved: SavedState, wall_ms: int
) -> None:
    """Begins an empty segment, durably, before the last segment is removed: it keeps the next offset."""
    if not replayed.ready:
        replayed.make_ready()
    if segments.active is not None:
        rolling.close_active(segments, offsets, replayed, saved)
    rolling.begin_segment(segments, replayed, offsets.end, wall_ms)
    segments.directory.sync_names()


def delete_before_start(segments: LogSegments, offsets: LogOffsets, replayed: Replayed, saved: SavedState) -> None:
    """Drops segments that lie wholly before the log's start, at most DROPPED_AT_ONCE. Retention drops the others, and
    segments above the saved recovery point once that point has moved."""
    limit_offset = min(offsets.start, saved.believed_snapshot(offsets) or 0)
    for _ in range(DROPPED_AT_ONCE):
        if len(segments) <= 1 or segments[1].base_offset > limit_offset:
            break
        _delete_oldest(segments, offsets, replayed, saved, segments[1].base_offset)


def _delete_oldest(
    segments: LogSegments, offsets: LogOffsets, replayed: Replayed, saved: SavedState, end_offset: int
) -> None:
    segments.drop_oldest()
    offsets.move_start(max(offsets.start, end_offset))
    replayed.start_at(offsets.start)
    saved.forget_before(segments[0].base_offset)


def condemn(segments: LogSegments, offsets: LogOffsets, rename: Callable[[], str | None] | None = None) -> str | None:
    """Renames the log's directory: as a condemned one, or by `rename`. Returns the new path; None if the log never had
    a directory."""
    offsets.truncations += 1
    segments.close()
    directory = segments.directory
    directory.close_unsynced_files()
    path = condemn_directory(directory.filesystem, directory.path) if rename is None else rename()
    if path is not None:
        # A topic of the same name may come soon: readers of the old log must not find the new one's files, nor may a
        # thread that still works for the old log write there.
        directory.path = path
        for file in segments.files():
            file.path = f"{path}/{file.path.rpartition('/')[2]}"
        for segment in segments:
            segment.directory = path
    return path


def condemn_directory(filesystem: Filesystem, directory: str) -> str | None:
    """Renames the directory to a name that no partition has. Durable once its parent is synced."""
    if not filesystem.exists(directory):
        return None
    parent, _, name = directory.rpartition("/")
    number = 0
    while filesystem.exists(path := f"{parent}/{name[:LONGEST_PART]}.{number}{CONDEMNED}"):
        number += 1
    filesystem.rename(directory, path)
    return path


def condemned_part(name: str) -> str | None:
    """The part of a partition's name in the name of a condemned directory; None for other directories."""
    part, _, number = name.removesuffix(CONDEMNED).rpartition(".")
    return part if name.endswith(CONDEMNED) and part and number.isdecimal() else None
