"""The idempotent producers of a partition: from the newest snapshot and the log behind it."""

from dataclasses import dataclass

from cordwood.log.inspection.directory import Partition
from cordwood.log.inspection.files import ReadOnlyFile, read_whole
from cordwood.records.control import known_marker_in
from cordwood.segments.damaged import DamagedFile
from cordwood.segments.names import Suffix, segment_file
from cordwood.segments.producer_snapshot import FORGOTTEN_EARLY, decode_snapshot
from cordwood.segments.scan import SegmentScan


@dataclass(slots=True)
class ProducerView:
    """The state of one producer that a restarted broker would have."""

    producer_id: int
    epoch: int
    last_sequence: int
    last_offset: int
    last_timestamp_ms: int
    open_transaction_from: int | None


def producers_of(partition: Partition) -> tuple[int | None, list[ProducerView]]:
    """The offset of the snapshot that was used, None if none was, and the producers by id."""
    snapshot_offset, known = _newest_snapshot(partition)
    start = partition.start_offset if snapshot_offset is None else snapshot_offset
    for segment in partition.segments:
        following = [other.base_offset for other in partition.segments if other.base_offset > segment.base_offset]
        if following and following[0] <= start:
            continue  # the whole segment is before the snapshot
        with ReadOnlyFile(segment.path(Suffix.LOG)) as file:
            scan = SegmentScan(file, segment.base_offset)
            for _, header in scan:
                if header.producer_id < 0 or header.base_offset < start:
                    continue
                view = known.setdefault(
                    header.producer_id, ProducerView(header.producer_id, header.producer_epoch, -1, -1, -1, None)
                )
                view.epoch = header.producer_epoch
                view.last_timestamp_ms = header.max_timestamp
                if header.control:
                    if known_marker_in(header, scan.batch) is not None:
                        view.open_transaction_from = None
                    continue
                view.last_sequence, view.last_offset = header.last_sequence, header.last_offset
                if header.transactional and view.open_transaction_from is None:
                    view.open_transaction_from = header.base_offset
    return snapshot_offset, [known[producer_id] for producer_id in sorted(known)]


def _newest_snapshot(partition: Partition) -> tuple[int | None, dict[int, ProducerView]]:
    for offset in reversed(partition.snapshots):
        try:
            entries = decode_snapshot(read_whole(segment_file(partition.directory, offset, Suffix.SNAPSHOT)))
        except DamagedFile:
            continue  # recovery, too, takes an older snapshot and reads more of the log
        return offset, {
            entry.producer_id: ProducerView(
                entry.producer_id,
                entry.producer_epoch,
                entry.last_sequence,
                entry.last_offset,
                entry.timestamp_ms,
                entry.transaction_first_offset if entry.transaction_first_offset >= 0 else None,
            )
            for entry in entries
            if entry.producer_id != FORGOTTEN_EARLY
        }
    return None, {}
