"""Opens a log: cheaply after a clean stop, by recovery otherwise.

After a clean stop the recovery point is the end of the log, so opening only lists a directory. The first use checks the
end of the active segment, and recovers the log if the end is not as the clean stop left it.
"""

from typing import TYPE_CHECKING

from cordwood.log import recovery, replay, rolling
from cordwood.log.partition_files import sort_out
from cordwood.log.report import Damage
from cordwood.log.segment import Segment
from cordwood.log.topic_identity import restore_topic_id
from cordwood.model.errors import DamagedLog
from cordwood.segments.abort_witness import FILE_NAME as ABORTS_FILE
from cordwood.segments.abort_witness import decode_witness
from cordwood.segments.damaged import DamagedIndex
from cordwood.segments.indexes import SegmentIndexes
from cordwood.segments.names import Suffix
from cordwood.segments.offset_index import OffsetIndex
from cordwood.segments.partition_metadata import FILE_NAME as METADATA_FILE
from cordwood.segments.time_index import TimeIndex

if TYPE_CHECKING:
    from cordwood.log.log import Log


def open_files(log: "Log", *, clean: bool) -> None:
    """Takes over the files on disk."""
    filesystem, directory = log.filesystem, log.directory
    names = filesystem.list(directory)
    if names:
        files = sort_out(filesystem, directory, names)
        log.segments = tuple(Segment.existing(filesystem, directory, base) for base in files.segments)
        log.snapshots = files.snapshots
    if ABORTS_FILE in names:
        witness = decode_witness(filesystem.read_bytes(f"{directory}/{ABORTS_FILE}"))
        for segment in log.segments if witness else ():
            segment.witnessed = witness.get(segment.base_offset)
    if not log.segments and max(log.recovery_point, log.witnessed_end_offset) <= log.log_start_offset:
        log.log_end_offset = log.durable_end_offset = log.recovery_point = log.log_start_offset
        replay.forget_later_snapshots(log)
        return
    if clean and _can_be_trusted(log):
        if METADATA_FILE not in names:
            restore_topic_id(log)
        log.log_start_offset = max(log.log_start_offset, log.segments[0].base_offset)
        log.active = log.segments[-1]
        log.ready = False
        return
    recovery.recover(log)


def _can_be_trusted(log: "Log") -> bool:
    """Whether the files look as a clean stop leaves them, by names and sizes alone."""
    if not log.segments or log.log_start_offset > log.recovery_point:
        return False
    last = log.segments[-1]
    return last.base_offset < log.recovery_point if last.size else last.base_offset == log.recovery_point


def make_ready(log: "Log") -> None:
    """At the first use after a clean stop: loads the indexes, and checks that the log ends where it should."""
    assert not log.ready
    segment = log.active
    assert segment is not None
    indexes = SegmentIndexes(segment.base_offset, log.settings.index_interval_bytes)
    first_timestamp_ms = log.opened.wall_ms
    try:
        if segment.size:
            read_bytes = log.filesystem.read_bytes
            indexes.offsets = OffsetIndex.from_bytes(read_bytes(segment.path(Suffix.INDEX)), log_size=segment.size)
            indexes.times = TimeIndex.from_bytes(read_bytes(segment.path(Suffix.TIME_INDEX)))
            segment.check_times(indexes.times)
            segment.saved_offsets, segment.saved_times = len(indexes.offsets), len(indexes.times)
            scan = indexes.resume(segment.file)
            last_indexed = segment.base_offset + max(indexes.offsets.last_offset, indexes.times.last.relative_offset)
            if scan.invalid is not None or scan.next_offset != log.log_end_offset or last_indexed >= scan.next_offset:
                raise DamagedLog(f"{log.partition} does not end at {log.log_end_offset} as the clean stop said")
            first_timestamp_ms = recovery.first_timestamp_ms(segment, log.opened.wall_ms)
    except (FileNotFoundError, DamagedIndex, DamagedLog):
        recovery.recover(log)
        _report_late(log)
        return
    segment.indexes = indexes
    segment.roll_at_ms = rolling.roll_time_ms(log, first_timestamp_ms)
    log.ready = True
    replay.restore_history(log)
    _report_late(log)


def _report_late(log: "Log") -> None:
    report = log.recovery
    if log.on_late_report is not None and (report.rebuilt or not report.clean):
        log.on_late_report()


def damage_of(log: "Log", segment: Segment) -> list[Damage]:
    """The holes of a segment as reports, without known ones."""
    known = {(damage.file, damage.position) for damage in log.damage}
    return [
        Damage(log.partition, segment.file.path, hole.position, hole.first_offset, hole.end_offset, hole.reason)
        for hole in segment.holes
        if (segment.file.path, hole.position) not in known
    ]
