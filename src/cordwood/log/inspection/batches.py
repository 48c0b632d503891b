"""The batches and records of partitions, one after the other, up to the first damage."""

from collections.abc import Iterator
from typing import NamedTuple

from cordwood.log.inspection.directory import Partition
from cordwood.log.inspection.files import ReadOnlyFile
from cordwood.log.parts.holes import HoleyScan
from cordwood.model.failure import ExitCode, Failure
from cordwood.records.batch import BatchHeader, Codec
from cordwood.records.corruption import CorruptRecords
from cordwood.records.records import Record, records_in
from cordwood.segments.names import Suffix
from cordwood.segments.scan import InvalidPlace


class FoundBatch(NamedTuple):
    partition: Partition
    position: int
    header: BatchHeader
    batch: memoryview

    @property
    def codec(self) -> str:
        try:
            return Codec(self.header.codec).name.lower()
        except ValueError:
            return f"codec {self.header.codec}"


class FoundRecord(NamedTuple):
    partition: Partition
    control: bool
    """True for a marker of a transaction."""
    record: Record


def batches_in(chosen: list[Partition], from_offset: int, limit: int | None) -> Iterator[FoundBatch]:
    """The batches that end at `from_offset` or later, at most `limit`. Raises Failure at damage."""
    left = limit
    for read in chosen:
        for segment in read.segments:
            with ReadOnlyFile(segment.path(Suffix.LOG)) as file:
                # Damage below the first wanted offset is stepped over.
                scan = HoleyScan(file, segment.base_offset, trusted_below=from_offset)
                for position, header in scan:
                    if header.last_offset < from_offset:
                        continue
                    if left is not None:
                        if not left:
                            return
                        left -= 1
                    yield FoundBatch(read, position, header, scan.batch)
                if scan.invalid is not None:
                    raise _unreadable(read, scan.invalid)
                for hole in scan.holes:
                    if hole.end_position == file.size:
                        raise _unreadable(read, InvalidPlace(hole.position, hole.first_offset, hole.reason))


def records_from(chosen: list[Partition], from_offset: int, limit: int | None) -> Iterator[FoundRecord]:
    """The records from `from_offset` on, at most `limit`. Raises Failure at damage."""
    left = limit
    for read, position, header, batch in batches_in(chosen, from_offset, None):
        try:
            for record in records_in(batch):
                if record.offset < from_offset:
                    continue
                if left is not None:
                    if not left:
                        return
                    left -= 1
                yield FoundRecord(read, header.control, record)
        except CorruptRecords as error:
            raise _unreadable(read, InvalidPlace(position, header.base_offset, str(error))) from error


def _unreadable(read: Partition, place: InvalidPlace) -> Failure:
    return Failure(
        "CORRUPT_MESSAGE",
        f"{read.partition} cannot be read from offset {place.offset} on (byte {place.position}): {place.reason}",
        "--verify lists all problems and what they mean",
        ExitCode.PROBLEM_FOUND,
    )
