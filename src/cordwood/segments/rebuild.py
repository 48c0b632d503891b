"""Rebuilds a segment's indexes from its log file if an index is lost or wrong."""

from typing import NamedTuple

from cordwood.records.batch import CONTROL_BIT, TRANSACTIONAL_BIT, BatchHeader
from cordwood.records.control import known_marker_in
from cordwood.segments.filesystem import File
from cordwood.segments.indexes import SegmentIndexes
from cordwood.segments.scan import InvalidPlace, SegmentScan
from cordwood.segments.transaction_index import OpenTransactions, TransactionIndex


class RebuiltSegment(NamedTuple):
    """The files beside a log file, rebuilt from it, up to its end or to the first invalid place."""

    indexes: SegmentIndexes
    transactions: TransactionIndex
    open_transactions: OpenTransactions
    valid_bytes: int
    next_offset: int
    invalid: InvalidPlace | None


def rebuild(
    file: File,
    base_offset: int,
    *,
    interval_bytes: int,
    open_transactions: OpenTransactions | None = None,
    closed: bool = True,
    verify_crc: bool = True,
) -> RebuiltSegment:
    """Makes a segment's indexes anew from its log file.

    `open_transactions` are those open at the segment's base; they are updated and returned. `closed`: the segment gets
    no more appends, so its time index ends with its largest timestamp.
    """
    indexes = SegmentIndexes(base_offset, interval_bytes)
    transactions = TransactionIndex()
    pending = open_transactions if open_transactions is not None else OpenTransactions()
    scan = SegmentScan(file, base_offset, verify_crc=verify_crc)
    for position, header in scan:
        indexes.note(position, header.size, header.last_offset, header.max_timestamp)
        if header.attributes & TRANSACTIONAL_BIT:
            note_transaction(header, scan.batch, pending, transactions)
    if closed:
        indexes.close()
    return RebuiltSegment(indexes, transactions, pending, scan.position, scan.next_offset, scan.invalid)


def note_transaction(
    header: BatchHeader, batch: memoryview, pending: OpenTransactions, transactions: TransactionIndex
) -> None:
    """Takes one transactional batch into account."""
    if not header.attributes & CONTROL_BIT:
        pending.data(header.producer_id, header.base_offset)
        return
    marker = known_marker_in(header, batch)
    if marker is None:
        return
    aborted = pending.marker(header.producer_id, header.base_offset, committed=marker.committed)
    if aborted is not None:
        transactions.append(aborted)
