"""Removes segments beyond the limits of age and size or before the log's start, and whole logs.

Segments are removed whole, the oldest first. A segment stays if it reaches beyond limit_offset, or beyond the recovery
point that a crash goes back to: the state of its producers must be in a snapshot that is believed after a crash. Files
are renamed, and removed file.delete.delay.ms later, because slices of them may be on their way to sockets.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from cordwood.log import rolling
from cordwood.log.checkpoint import remove_if_there, saved_snapshot
from cordwood.log.report import DeletedSegment
from cordwood.log.segment import Deletion
from cordwood.model.moment import Moment
from cordwood.segments.filesystem import File, Filesystem
from cordwood.segments.names import Suffix, segment_file
from cordwood.segments.set_aside import LONGEST_PART

if TYPE_CHECKING:
    from cordwood.log.log import Log

DROPPED_AT_ONCE = 16
"""The most segments that one call drops: renaming the files of a segment takes some 0.1 ms, on a busy disk longer."""

CONDEMNED = "-delete"
"""The suffix of a directory whose log was deleted."""


def apply(log: "Log", now: Moment, limit_offset: int) -> list[DeletedSegment]:
    """Drops segments beyond the topic's limits, at most DROPPED_AT_ONCE."""
    _expire_producers(log, now.boot_ms)
    limit_offset = min(limit_offset, _saved_to(log))
    deleted: list[DeletedSegment] = []
    while log.segments and len(deleted) < DROPPED_AT_ONCE:
        end_offset = log.end_of_segment(0)
        oldest = log.segments[0]
        if end_offset > limit_offset or (not oldest.size and len(log.segments) == 1):
            break
        reason = _reason_to_delete(log, now.wall_ms, end_offset)
        if reason is None:
            break
        if len(log.segments) == 1:
            _begin_anew(log, now.wall_ms)
        deleted.append(DeletedSegment(oldest.base_offset, end_offset, oldest.size, reason))
        _delete_oldest(log, end_offset)
    return deleted


def _saved_to(log: "Log") -> int:
    """The offset below which batches may be removed: a snapshot that is believed after a crash has their producers."""
    return saved_snapshot(log) or 0


def _reason_to_delete(log: "Log", wall_ms: int, end_offset: int) -> str | None:
    settings, oldest = log.settings, log.segments[0]
    if end_offset <= log.log_start_offset and len(log.segments) > 1:
        return f"it is before the log's start at {log.log_start_offset}"
    if not settings.deletes:
        return None
    if not oldest.size:
        return "compaction left nothing in it"
    if settings.retention_bytes >= 0 and log.size_bytes - oldest.size >= settings.retention_bytes:
        return f"the log is larger than retention.bytes={settings.retention_bytes}"
    if settings.retention_ms >= 0:
        # Right for the active segment of a log that is not ready, too: a checkpoint saves its largest timestamp.
        latest_ms = _latest_ms(log)
        # Records without timestamps have no age: only their size can drive them out.
        if 0 <= latest_ms < wall_ms - settings.retention_ms:
            return f"its records are older than retention.ms={settings.retention_ms}"
    return None


def _latest_ms(log: "Log") -> int:
    """The latest timestamp of the oldest segment; -1 if its records have none."""
    interval_bytes = log.settings.index_interval_bytes
    for place, segment in enumerate(log.segments):
        latest_ms = segment.max_timestamp_ms(log.end_of_segment(place), interval_bytes)
        # An unreadable segment counts as old as the next one. Else it would stay for ever, with all segments behind it.
        if latest_ms >= 0 or not segment.holes:
            return latest_ms
    return -1


def _begin_anew(log: "Log", wall_ms: int) -> None:
    """Begins an empty segment, durably, before the last segment is removed: it keeps the next offset."""
    _ = log.producers
    if log.active is not None:
        rolling.close_active(log)
    rolling.begin_segment(log, log.log_end_offset, wall_ms)
    log.filesystem.sync_directory(log.directory)


def _expire_producers(log: "Log", boot_ms: int) -> None:
    if log.ready and len(log.producers):
        log.producers.expire(boot_ms, log.producer_expiration_ms)


def delete_before_start(log: "Log") -> None:
    """Drops segments that lie wholly before the log's start, at most DROPPED_AT_ONCE. Retention drops the others, and
    those above the saved recovery point once that has moved."""
    limit_offset = min(log.log_start_offset, _saved_to(log))
    for _ in range(DROPPED_AT_ONCE):
        if len(log.segments) <= 1 or log.segments[1].base_offset > limit_offset:
            break
        _delete_oldest(log, log.segments[1].base_offset)


def _delete_oldest(log: "Log", end_offset: int) -> None:
    oldest = log.segments[0]
    log.segments = log.segments[1:]
    log.closing = [segment for segment in log.closing if segment is not oldest]
    log.loaded_indexes.forget(oldest)
    log.deletions.append(Deletion(None, oldest.file, oldest.mark_deleted()))
    if end_offset > log.log_start_offset:
        log.log_start_offset = end_offset
    if log.leader_epochs.truncate_to_start(log.log_start_offset):
        log.epochs_changed = True
    first_base = log.segments[0].base_offset
    for offset in [offset for offset in log.snapshots[:-1] if offset < first_base]:
        remove_if_there(log.filesystem, segment_file(log.directory, offset, Suffix.SNAPSHOT))
        log.snapshots.remove(offset)


def take_due_deletions(log: "Log", boot_ms: int) -> list[str]:
    """The files that were dropped file.delete.delay.ms ago. Their readers fail from now on; the caller removes them, in
    any thread: freeing the disk of a large file takes long.

    A segment that is replaced twice gets the same last name: its new file may go early, and a reader of it asks again.
    """
    waiting, due = [], []
    for due_ms, file, paths in log.deletions:
        if due_ms is None:
            due_ms = boot_ms + log.settings.file_delete_delay_ms
        if boot_ms < due_ms:
            waiting.append(Deletion(due_ms, file, paths))
            continue
        file.close()
        file.path += ".gone"
        due += paths
    log.deletions = waiting
    return due


def condemn(log: "Log") -> str | None:
    """Renames the log's directory. Returns the new path; None if the log never had a directory."""
    log.truncations += 1
    log.close()
    path = condemn_directory(log.filesystem, log.directory)
    if path is not None:
        # A topic of the same name may come soon: readers of the old log must not find the new one's files.
        for file in _files(log):
            file.path = f"{path}/{file.path.rpartition('/')[2]}"
        for segment in log.segments:
            segment.directory = path
    return path


def lose_files(log: "Log") -> None:
    """Makes reads of a condemned log fail: its directory is about to be removed, and the name may be used again."""
    for file in _files(log):
        file.path += ".gone"
        # A sender may have opened the file again for the rest of an answer.
        file.close()


def _files(log: "Log") -> Iterator[File]:
    yield from (segment.file for segment in log.segments)
    yield from (deletion.file for deletion in log.deletions)


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
