"""Verifies a partition's files: every batch, every record, and all files that are derived from them.

Files are read as recovery reads them. A bad place below the durable end is damage of acknowledged data: the broker
steps over it. A bad place above the durable end is a tail that a crash tore: the broker cuts the log there at its next
start. A wrong index costs only the time to rebuild it.
"""

from collections.abc import Iterator
from enum import StrEnum
from typing import NamedTuple

from cordwood.log.inspection.directory import Partition, Segment
from cordwood.log.inspection.files import ReadOnlyFile, read_whole
from cordwood.log.inspection.verify_indexes import IndexWalk
from cordwood.log.parts.holes import HoleyScan
from cordwood.records.batch import BatchHeader
from cordwood.records.corruption import CorruptRecords
from cordwood.records.records import records_in
from cordwood.segments.damaged import DamagedFile
from cordwood.segments.names import Suffix, segment_file
from cordwood.segments.producer_snapshot import decode_snapshot
from cordwood.segments.transaction_index import OpenTransactions


class Kind(StrEnum):
    DAMAGE = "damage"
    TORN_TAIL = "torn tail"
    DERIVED = "derived file"


MEANINGS = {
    Kind.DAMAGE: "acknowledged records cannot be read; once the broker's scrub has read this place, the broker refuses "
    "these offsets, names them in its log and in `topic describe`, and serves all others",
    Kind.TORN_TAIL: "a crash left this tail, of which no client was told; the broker cuts it off at its next start",
    Kind.DERIVED: "nothing is lost: the broker makes the file again from the log",
}


class Problem(NamedTuple):
    kind: Kind
    file: str
    offset: int | None
    """The first wrong offset; None for a problem without offsets."""
    end_offset: int | None
    """The first sound offset behind `offset`; None if everything from `offset` on is wrong."""
    what: str


class Verified(NamedTuple):
    problems: list[Problem]
    batches: int
    records: int
    end_offset: int


def verify(partition: Partition) -> Verified:
    """Reads everything in a partition's directory, and lists the problems."""
    problems = [Problem(Kind.DERIVED, path, None, None, reason) for path, reason in partition.unreadable]
    batches = records = 0
    end_offset = partition.start_offset
    transactions = OpenTransactions()
    for segment in partition.segments:
        if segment is not partition.segments[0] and segment.base_offset < end_offset:
            overlap = f"begins at {segment.base_offset}, but the segment before it ends at {end_offset}"
            problems.append(Problem(Kind.DAMAGE, segment.path(Suffix.LOG), segment.base_offset, end_offset, overlap))
        reading = _SegmentReading(partition, segment, transactions)
        problems.extend(reading.run())
        batches += reading.batches
        records += reading.records
        end_offset = reading.next_offset
    if end_offset < partition.durable_end_offset:
        path = partition.segments[-1].path(Suffix.LOG) if partition.segments else partition.directory
        what = f"the log ends at {end_offset}, and was fsynced up to {partition.durable_end_offset}"
        problems.append(Problem(Kind.DAMAGE, path, end_offset, partition.durable_end_offset, what))
    problems.extend(_snapshot_problems(partition))
    return Verified(problems, batches, records, end_offset)


class _SegmentReading:
    """One pass over a segment's log, and over its derived files beside it."""

    def __init__(self, partition: Partition, segment: Segment, transactions: OpenTransactions) -> None:
        self._segment = segment
        self._epochs = partition.leader_epochs
        later = [each.base_offset for each in partition.segments if each.base_offset > segment.base_offset]
        self._durable_end = min([partition.durable_end_offset, *later])
        self._is_last = segment is partition.segments[-1]
        self._transactions = transactions
        self._epoch_differs: str | None = None
        self.batches = 0
        self.records = 0
        self.next_offset = segment.base_offset

    def run(self) -> Iterator[Problem]:
        path = self._segment.path(Suffix.LOG)
        walk = IndexWalk(self._segment, self._transactions, still_written=self._is_last)
        with ReadOnlyFile(path) as file:
            scan = HoleyScan(file, self._segment.base_offset, trusted_below=self._durable_end)
            for position, header in scan:
                self.batches += 1
                self.records += header.record_count
                reason = why_records_are_wrong(header, scan.batch)
                if reason is not None:
                    yield self._broken(path, position, header.base_offset, header.next_offset, reason)
                self._compare_epoch(header)
                walk.batch(position, header, scan.batch)
        self.next_offset = scan.next_offset
        for hole in scan.holes:
            yield self._broken(path, hole.position, hole.first_offset, hole.end_offset, hole.reason)
        if scan.invalid is not None:
            yield self._broken(path, scan.invalid.position, scan.invalid.offset, None, scan.invalid.reason)
        for suffix, reason in walk.end(complete=scan.invalid is None and not scan.holes):
            yield Problem(Kind.DERIVED, self._segment.path(suffix), None, None, reason)
        if self._epoch_differs is not None:
            yield Problem(Kind.DERIVED, path, None, None, self._epoch_differs)

    def _broken(self, path: str, position: int, offset: int, end_offset: int | None, reason: str) -> Problem:
        kind = Kind.DAMAGE if offset < self._durable_end else Kind.TORN_TAIL
        return Problem(kind, path, offset, end_offset, f"at byte {position}: {reason}")

    def _compare_epoch(self, header: BatchHeader) -> None:
        if self._epochs is None or self._epoch_differs is not None:
            return
        noted = self._epochs.epoch_at(header.base_offset)
        if noted >= 0 and noted != header.partition_leader_epoch:
            self._epoch_differs = (
                f"offset {header.base_offset} was written in leader epoch {header.partition_leader_epoch}, "
                f"leader-epoch-checkpoint says {noted}"
            )


def why_records_are_wrong(header: BatchHeader, batch: memoryview) -> str | None:
    """The reason why the records of a batch cannot be read, after decompressing it; None if they can."""
    try:
        last = -1
        for record in records_in(batch):
            if record.offset <= last:
                return f"record offset {record.offset} does not follow {last}"
            last = record.offset
    except CorruptRecords as error:
        return f"the batch of offsets {header.base_offset} to {header.last_offset}: {error}"
    return None


def _snapshot_problems(partition: Partition) -> Iterator[Problem]:
    for offset in partition.snapshots:
        path = segment_file(partition.directory, offset, Suffix.SNAPSHOT)
        try:
            decode_snapshot(read_whole(path))
        except DamagedFile as error:
            yield Problem(Kind.DERIVED, path, None, None, str(error))
