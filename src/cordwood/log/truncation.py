"""Cuts the log: at its end, because a leader's history diverged; at its start, for good.

The recovery point is lowered, durably, before anything above it is cut. Otherwise a crash in between would make
recovery report the missing end as damage, and never give its offsets out again.
"""

from typing import TYPE_CHECKING

from cordwood.log import replay, retention, rolling
from cordwood.log.checkpoint import remove_if_there
from cordwood.log.lookup import HeaderReader, find_batch_with
from cordwood.log.producers import ProducerStates
from cordwood.log.segment import SEGMENT_SUFFIXES, Segment
from cordwood.model.errors import ErrorCode, ProtocolError
from cordwood.segments.names import Suffix, segment_file
from cordwood.segments.producer_snapshot import encode_snapshot

if TYPE_CHECKING:
    from cordwood.log.log import Log


def truncate_to(log: "Log", offset: int) -> None:
    """Cuts all batches that end at or after this offset; if a batch spans the offset, the log ends at its start."""
    if offset >= log.log_end_offset:
        return
    # The producers are loaded before the files that they come from are cut.
    _ = log.producers
    place = log.place_of(offset)
    segment = log.segments[place]
    position, end_offset = _find_cut(log, segment, offset)
    if offset < log.log_start_offset:
        restart_at(log, offset)
        return
    if end_offset <= log.log_start_offset:
        # No readable batch is left, but the batches before the start still give the state of producers.
        _lower_recovery_point(log, end_offset)
        log.log_end_offset = end_offset
        replay.restore_history(log)
        _restart(log, log.log_start_offset, log.producers)
        return
    _lower_recovery_point(log, end_offset)
    log.truncations += 1
    _remove_segments(log, log.segments[place + 1 :])
    _cut_segment(log, segment, position, end_offset)
    log.segments = log.segments[: place + 1]
    log.active = segment
    log.closing = [closing for closing in log.closing if closing in log.segments and closing is not segment]
    _end_at(log, end_offset)
    replay.restore_history(log)


def restart_at(log: "Log", offset: int) -> None:
    """Drops all batches and producers; the empty log goes on at this offset."""
    _ = log.producers
    _lower_recovery_point(log, offset)
    _restart(log, offset, ProducerStates())


def _restart(log: "Log", offset: int, producers: ProducerStates) -> None:
    log.truncations += 1
    _remove_segments(log, log.segments)
    log.segments, log.active, log.closing = (), None, []
    for snapshot in log.snapshots:
        remove_if_there(log.filesystem, segment_file(log.directory, snapshot, Suffix.SNAPSHOT))
    log.snapshots = []
    log.log_start_offset = log.recovery_point = offset
    _end_at(log, offset)
    log.durable_end_offset = offset
    if log.filesystem.exists(log.directory):
        data = encode_snapshot(producers.snapshot_entries())
        log.filesystem.replace(segment_file(log.directory, offset, Suffix.SNAPSHOT), data)
        log.snapshots = [offset]
        # An empty segment keeps the next offset over a crash.
        rolling.begin_segment(log, offset, log.opened.wall_ms)
        log.filesystem.sync_directory(log.directory)
    replay.restore_history(log)


def delete_records_before(log: "Log", offset: int) -> None:
    """Moves the log's start to this offset. Raises OFFSET_OUT_OF_RANGE if the log does not reach it."""
    if offset > log.log_end_offset or offset < 0:
        raise ProtocolError(
            ErrorCode.OFFSET_OUT_OF_RANGE,
            f"{log.partition} ends at {log.log_end_offset}: records before {offset} cannot be deleted.",
        )
    if offset <= log.log_start_offset:
        return
    log.log_start_offset = offset
    if log.leader_epochs.truncate_to_start(offset):
        log.epochs_changed = True
    retention.delete_before_start(log)


def _lower_recovery_point(log: "Log", offset: int) -> None:
    log.recovery_point = min(log.recovery_point, offset)
    if log.on_cut is not None:
        log.on_cut(log)


def _remove_segments(log: "Log", segments: tuple[Segment, ...]) -> None:
    """Removes segments, the last one first, so that a crash leaves a log without a gap."""
    for segment in reversed(segments):
        segment.file.close()
        log.loaded_indexes.forget(segment)
        for suffix in SEGMENT_SUFFIXES:
            remove_if_there(log.filesystem, segment.path(suffix))
        # The name may be used again; readers of this file must not find the new one.
        segment.file.path += ".gone"
    if segments:
        log.filesystem.sync_directory(log.directory)


def _find_cut(log: "Log", segment: Segment, offset: int) -> tuple[int, int]:
    """Position and offset at which the segment must end so that no batch reaches the offset."""
    end_offset = log.end_of_segment(log.place_of(offset))
    indexes = segment.load_indexes(end_offset, log.settings.index_interval_bytes)
    reader = HeaderReader(segment.file, segment.size, may_block=True)
    place = find_batch_with(reader, segment, indexes, offset, end_offset, segment.size)
    if place is None:
        return segment.size, offset
    return place.position, min(offset, place.base_offset)


def _cut_segment(log: "Log", segment: Segment, position: int, end_offset: int) -> None:
    indexes = segment.indexes
    assert indexes is not None
    log.loaded_indexes.forget(segment)
    segment.file.truncate(position)
    segment.file.sync()
    segment.size = position
    indexes.truncate(end_offset, segment.file)
    segment.full = False
    segment.holes = tuple(hole for hole in segment.holes if hole.end_position <= position)
    segment.saved_offsets = min(segment.saved_offsets, len(indexes.offsets))
    segment.saved_times = min(segment.saved_times, len(indexes.times))
    segment.roll_at_ms = rolling.roll_time_ms(log, log.opened.wall_ms)
    segment.forget_recent()


def _end_at(log: "Log", end_offset: int) -> None:
    log.log_end_offset = end_offset
    log.durable_end_offset = min(log.durable_end_offset, end_offset)
    log.unsaved_snapshots = tuple(snapshot for snapshot in log.unsaved_snapshots if snapshot[0] <= end_offset)
    log.checkpoint_due = True
