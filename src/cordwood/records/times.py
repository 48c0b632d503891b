"""The first record of a batch that is as late as a timestamp: what ListOffsets asks."""

from typing import NamedTuple

from cordwood.records.batch import Buffer
from cordwood.records.corruption import CorruptRecords
from cordwood.records.records import packed_records_in, uncompressed_records

_LATEST_MS = 2**63 - 1


class FoundInBatch(NamedTuple):
    """Offset and time of the record; -1 for both if there is none."""

    offset: int
    timestamp_ms: int
    uncompressed_bytes: int
    """The bytes that were opened for the search."""


def first_as_late(batch: Buffer, timestamp_ms: int, start_offset: int, max_size: int | None = None) -> FoundInBatch:
    """Looks at the batch's records from `start_offset` on, one by one. CorruptRecords if they cannot be read."""
    uncompressed = uncompressed_records(batch, max_size)
    for record in packed_records_in(batch, uncompressed=uncompressed):
        if record.timestamp_ms >= timestamp_ms and record.offset >= start_offset:
            if record.timestamp_ms > _LATEST_MS:
                raise CorruptRecords(f"a record has the time {record.timestamp_ms}")
            return FoundInBatch(record.offset, record.timestamp_ms, len(uncompressed))
    return FoundInBatch(-1, -1, len(uncompressed))
