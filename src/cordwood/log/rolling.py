"""Rolls segments: by size, age, a full index, or offsets that the index could not hold."""

import zlib
from typing import TYPE_CHECKING

from cordwood.log.replay import note_snapshot
from cordwood.log.segment import Segment
from cordwood.log.topic_identity import write_topic_id
from cordwood.model.errors import StorageFailure
from cordwood.segments.offset_index import ENTRY_SIZE as OFFSET_ENTRY_SIZE
from cordwood.segments.offset_index import MAX_RELATIVE_OFFSET
from cordwood.segments.time_index import ENTRY_SIZE as TIME_ENTRY_SIZE

if TYPE_CHECKING:
    from cordwood.log.log import Log


MAX_CLOSING = 32
"""The most rolled segments whose indexes no checkpoint has saved yet; beyond that the active segment grows on.

A new file takes the loop some 0.2 ms, and milliseconds once a file has to be synced before another can be opened. With
a small segment.bytes thousands of batches in one request would each make a file.
"""

MAX_FILE_BYTES = 2**31 - 1
"""Positions in an offset index have 32 bits."""


def segment_for_append(log: "Log", size: int, base_offset: int, last_offset: int, wall_ms: int) -> Segment:
    """The segment for a batch of this size: the active one if it can or must take it, else a new one."""
    segment = log.active
    if segment is None:
        return begin_segment(log, base_offset, wall_ms)
    if segment.size:
        fits = segment.size + size <= MAX_FILE_BYTES and last_offset - segment.base_offset <= MAX_RELATIVE_OFFSET
        if fits and len(log.closing) >= MAX_CLOSING:
            return segment
        close_active(log)
        return begin_segment(log, base_offset, wall_ms)
    if last_offset - segment.base_offset > MAX_RELATIVE_OFFSET:
        # The segment is empty, and lies too far before the next offset of a leader's compacted log.
        begun = begin_segment(log, base_offset, wall_ms)
        log.segments = (*log.segments[:-2], begun)
        segment.file.close()
        log.filesystem.remove(segment.file.path)
        return begun
    # A batch larger than segment.bytes gets a segment of its own, and an empty segment has no age.
    segment.roll_at_ms = roll_time_ms(log, wall_ms)
    return segment


def begin_segment(log: "Log", base_offset: int, wall_ms: int) -> Segment:
    """Begins a new active segment at the log's end. The first segment makes the partition's directory."""
    if not log.segments:
        _make_directory(log)
    segment = Segment.create(log.filesystem, log.directory, base_offset, log.settings.index_interval_bytes)
    segment.roll_at_ms = roll_time_ms(log, wall_ms)
    if log.settings.preallocate:
        segment.file.reserve(log.segment_bytes)
    log.segments = (*log.segments, segment)
    log.active = segment
    note_new_names(log, log.directory)
    return segment


def _make_directory(log: "Log") -> None:
    filesystem, directory = log.filesystem, log.directory
    # The name of an existing directory may not be durable yet: a killed process may have made it.
    note_new_names(log, directory.rpartition("/")[0])
    if filesystem.exists(directory):
        write_topic_id(log)
        return
    filesystem.make_directory(directory)
    log.epochs_changed = True
    try:
        write_topic_id(log)
    except StorageFailure:
        # Without space for this file there is none for a batch: the next append begins anew.
        filesystem.remove_tree(directory)
        raise


def note_new_names(log: "Log", directory: str) -> None:
    """Notes a directory with new names, which the next flush must make durable."""
    log.names_version += 1
    if directory not in log.unsynced_directories:
        log.unsynced_directories = (*log.unsynced_directories, directory)


def close_active(log: "Log") -> None:
    """Closes the active segment. The next checkpoint saves its indexes."""
    segment = log.active
    assert segment is not None
    assert segment.indexes is not None
    segment.indexes.close()
    segment.forget_recent()
    give_back_reserve(log)
    log.active = None
    log.closing.append(segment)
    note_snapshot(log, log.log_end_offset, log.producers)


def give_back_reserve(log: "Log") -> None:
    """Frees the disk that the active segment reserved (preallocate) and did not use."""
    if log.active is not None and log.settings.preallocate:
        log.active.file.reserve(0)


def roll_if_due(log: "Log", wall_ms: int) -> bool:
    """Closes an active segment that has data and is old enough."""
    segment = log.active
    if segment is None or not segment.size or wall_ms < segment.roll_at_ms or not log.ready:
        return False
    close_active(log)
    return True


def roll_time_ms(log: "Log", begun_ms: int) -> int:
    """When a segment that was begun at `begun_ms` is old enough to be closed."""
    settings = log.settings
    jitter_ms = min(settings.segment_jitter_ms, settings.rolls_after_ms - 1)
    if jitter_ms > 0:
        # The jitter comes from the partition's name, so that partitions differ and a replay does not.
        jitter_ms = zlib.crc32(str(log.partition).encode()) % (jitter_ms + 1)
    return begun_ms + settings.rolls_after_ms - jitter_ms


def note_index_entry(log: "Log", segment: Segment) -> None:
    """Marks the segment full when its indexes have no room for another entry."""
    indexes = segment.indexes
    assert indexes is not None
    limit = log.settings.segment_index_bytes
    segment.full = (
        indexes.offsets.size_bytes + OFFSET_ENTRY_SIZE > limit or indexes.times.size_bytes + TIME_ENTRY_SIZE > limit
    )
