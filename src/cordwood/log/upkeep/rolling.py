"""Rolls segments: by size, age, a full index, or offsets that the index could not hold."""

from cordwood.log.parts.offsets import LogOffsets
from cordwood.log.parts.replayed import Replayed
from cordwood.log.parts.saved_state import SavedState
from cordwood.log.parts.segment import Segment
from cordwood.log.parts.segments import LogSegments
from cordwood.segments.offset_index import ENTRY_SIZE as OFFSET_ENTRY_SIZE
from cordwood.segments.offset_index import MAX_RELATIVE_OFFSET
from cordwood.segments.time_index import ENTRY_SIZE as TIME_ENTRY_SIZE

MAX_CLOSING = 32
"""The most rolled segments whose indexes no checkpoint has saved yet; beyond that the active segment grows on.

A new file takes the loop some 0.2 ms, and milliseconds once a file has to be synced before another can be opened. With
a small segment.bytes thousands of batches in one request would each make a file.
"""

MAX_FILE_BYTES = 2**31 - 1
"""Positions in an offset index have 32 bits."""


def segment_for_append(
    segments: LogSegments,
    offsets: LogOffsets,
    replayed: Replayed,
    saved: SavedState,
    *,
    size: int,
    base_offset: int,
    last_offset: int,
    wall_ms: int,
) -> Segment:
    """The segment for a batch of this size: the active one if it can or must take it, else a new one."""
    segment = segments.active
    if segment is None:
        if not segments.all and offsets.end == offsets.start:
            # The first batch of a leader's compacted log may lie far behind the start of a log that is filled anew. By
            # the epochs the next start knows that no record was here before that batch.
            replayed.start_at(base_offset)
        begun = begin_segment(segments, replayed, base_offset, wall_ms)
        if len(segments) == 1:
            offsets.on_begin(base_offset)
        return begun
    if segment.size:
        fits = segment.size + size <= MAX_FILE_BYTES and last_offset - segment.base_offset <= MAX_RELATIVE_OFFSET
        if fits and len(segments.closing) >= MAX_CLOSING:
            return segment
        close_active(segments, offsets, replayed, saved)
        return begin_segment(segments, replayed, base_offset, wall_ms)
    if last_offset - segment.base_offset > MAX_RELATIVE_OFFSET:
        # The segment is empty, and lies too far before the next offset of a leader's compacted log.
        begun = begin_segment(segments, replayed, base_offset, wall_ms)
        if segments[0] is segment:
            replayed.start_at(base_offset)
            offsets.on_begin(base_offset)
        segments.replace((segment,), ())
        segment.file.close()
        segments.directory.filesystem.remove(segment.file.path)
        return begun
    # A batch larger than segment.bytes gets a segment of its own, and an empty segment has no age.
    segment.roll_at_ms = segments.roll_time_ms(wall_ms)
    return segment


def begin_segment(segments: LogSegments, replayed: Replayed, base_offset: int, wall_ms: int) -> Segment:
    """Begins a new active segment at the log's end. The first segment makes the partition's directory."""
    if not segments.all and segments.directory.make():
        # A new directory has no file with the leader epochs.
        replayed.epochs_changed = True
    return segments.begin(base_offset, wall_ms)


def close_active(segments: LogSegments, offsets: LogOffsets, replayed: Replayed, saved: SavedState) -> None:
    """Closes the active segment. The next checkpoint saves its indexes, and the producers at its end."""
    segments.close_active()
    saved.note_snapshot(offsets.end, replayed.producers)


def roll_if_due(
    segments: LogSegments, offsets: LogOffsets, replayed: Replayed, saved: SavedState, wall_ms: int
) -> bool:
    """Closes an active segment that has data and is old enough; the next append begins a new one."""
    segment = segments.active
    if segment is None or not segment.size or wall_ms < segment.roll_at_ms or not replayed.ready:
        return False
    close_active(segments, offsets, replayed, saved)
    return True


def note_index_entry(segment: Segment, segment_index_bytes: int) -> None:
    """Marks the segment full when its indexes have no room for another entry."""
    indexes = segment.indexes
    assert indexes is not None
    segment.full = (
        indexes.offsets.size_bytes + OFFSET_ENTRY_SIZE > segment_index_bytes
        or indexes.times.size_bytes + TIME_ENTRY_SIZE > segment_index_bytes
    )
