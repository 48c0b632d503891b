"""The batches of a coordinator's log, read back: plain records, records of transactions, markers."""

from typing import NamedTuple

from cordwood.log.reading.lookup import LogSlice
from cordwood.records.batch import BatchHeader, batches_in, crc_is_right
from cordwood.records.control import TransactionMarker, read_transaction_marker
from cordwood.records.corruption import CorruptRecords
from cordwood.records.records import records_in


class Found(NamedTuple):
    """The content of one batch of the log: plain records, records of a transaction, or a transaction's marker."""

    records: list[tuple[int, bytes, bytes | None]]
    """Offset, key, value."""
    producer_id: int = -1
    """The producer of the transaction; -1: no transaction."""
    marker: TransactionMarker | None = None


def read_records(chunk: LogSlice) -> tuple[list[Found], int, bool]:
    """The content of the sound batches in a slice, the offset after them, and whether a damaged batch follows."""
    data = chunk.file.read(chunk.position, chunk.length)
    batches: list[Found] = []
    next_offset = chunk.base_offset
    try:
        for position, header in batches_in(data):
            if not crc_is_right(data, position, header.size):
                return batches, next_offset, True
            batches += _found_in(memoryview(data)[position : position + header.size], header)
            next_offset = header.next_offset
    except CorruptRecords:
        return batches, next_offset, True
    return batches, next_offset, False


def _found_in(batch: memoryview, header: BatchHeader) -> list[Found]:
    producer_id = header.producer_id if header.transactional else -1
    if not header.control:
        records = [(each.offset, each.key, each.value) for each in records_in(batch) if each.key is not None]
        return [Found(records, producer_id)]
    marker = read_transaction_marker(batch) if header.record_count else None
    return [] if marker is None else [Found([], producer_id, marker)]
