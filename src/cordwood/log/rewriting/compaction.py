"""Compaction keeps the latest record of every key, at its offset.

Compaction works on closed segments only, so it needs no running log and runs in another process. New segments are
written beside the old ones (`.cleaned`); the log swaps them in. Two passes: the first notes the last offset of each key
in the part that was never compacted, as far as memory allows; the second copies the latest records.

When records are removed:
- a record with a later one of the same key: at once;
- a tombstone (null value) that is the latest of its key: `delete.retention.ms` after compaction first saw it, so that
  readers that are not far behind see the deletion. The batch remembers that moment (its delete horizon);
- records of an aborted transaction: at once; the marker of a transaction: like a tombstone, once no batch of the
  transaction is left; `CompactionResult.dropped` covers tombstones and markers: a replica that lacks them is not simply
  a compacted copy (docs/decisions/dropped-deletions.md);
- a batch that has lost all its records: at once, unless it is the last one of its producer, or the last one that was
  read. Its header then stays: a producer's last batch gives the next sequence number, the last one read the end of the
  log.

A batch that cannot be opened stays whole: a topic that was not always compacted may hold batches of any content. Record
headers are copied unread.
"""

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from cordwood.model.errors import DamagedLog
from cordwood.records.batch import BatchHeader, read_header
from cordwood.records.build import build_batch
from cordwood.records.control import read_transaction_marker
from cordwood.records.corruption import CorruptRecords
from cordwood.records.records import PackedRecord, packed_records_in
from cordwood.segments.filesystem import Filesystem
from cordwood.segments.indexes import SegmentIndexes
from cordwood.segments.names import Stage, Suffix, segment_file
from cordwood.segments.offset_index import MAX_RELATIVE_OFFSET
from cordwood.segments.scan import SegmentScan
from cordwood.segments.transaction_index import AbortedTransaction, TransactionIndex

BYTES_PER_KEY = 192
"""The memory of a key in the first pass: its bytes or digest, its offset, and its place in a dict."""

LONGEST_PLAIN_KEY = 15
"""Longer keys are remembered by a digest of 16 bytes: memory depends on the number of keys, not on their size."""

WRITE_CHUNK_BYTES = 1 << 20

_MAX_TIME_MS = 1 << 62
"""The bound of timestamps that can be written again: a batch stores them as 64-bit differences to a base timestamp,
which compaction may change."""


@dataclass(frozen=True, slots=True)
class CompactionJob:
    """The inputs of a compaction."""

    directory: str
    segments: tuple[int, ...]
    """The base offsets of the closed segments that may be compacted, in order."""
    sizes: tuple[int, ...]
    first_dirty_offset: int
    """Records below this offset were compacted before: they are copied again, but their keys need not be remembered."""
    end_offset: int
    """The end offset of the last segment."""
    wall_ms: int
    delete_retention_ms: int
    segment_bytes: int
    segment_index_bytes: int
    index_interval_bytes: int
    key_memory_bytes: int
    last_offsets: Mapping[int, int] = field(default_factory=dict)
    """The last offset of each live producer id."""
    aborted_later: tuple[AbortedTransaction, ...] = ()
    """Aborted transactions with data in the segments and a marker behind them."""
    drops_deletions: bool = True
    """True if tombstones and markers whose time has come may be dropped."""


class Replacement(NamedTuple):
    """The new segment, under the base offset of the first old one, replaces all of the old ones."""

    old: tuple[int, ...]
    new: int


@dataclass(slots=True)
class CompactionResult:
    replacements: list[Replacement] = field(default_factory=list)
    clean_offset: int = 0
    """The end of the compacted part of the log."""
    records_read: int = 0
    records_kept: int = 0
    bytes_read: int = 0
    bytes_written: int = 0
    dropped: int = -1
    """The highest offset of a tombstone or marker that was dropped because its time had come; -1: none was."""


def compact(filesystem: Filesystem, job: CompactionJob) -> CompactionResult:
    """Writes the `.cleaned` files of one round, synced. Changes no file that was there before."""
    aborted = _aborted_transactions(filesystem, job)
    latest, clean_offset = _latest_offsets(filesystem, job, aborted)
    result = CompactionResult(clean_offset=clean_offset)
    transactions = _Transactions(aborted)
    for group in _groups(job, clean_offset):
        _Cleaner(filesystem, job, latest, transactions, result).clean(group)
    return result


def key_identity(key: bytes) -> bytes:
    """The bytes that identify a key in memory."""
    if len(key) <= LONGEST_PLAIN_KEY:
        return key
    return hashlib.blake2b(key, digest_size=LONGEST_PLAIN_KEY + 1).digest()


def _batches(filesystem: Filesystem, directory: str, base_offset: int) -> Iterator[tuple[BatchHeader, memoryview]]:
    """The batches of a closed segment. Damage ends the compaction: unreadable records must never be removed."""
    file = filesystem.open(segment_file(directory, base_offset, Suffix.LOG))
    scan = SegmentScan(file, base_offset)
    for _, header in scan:
        yield header, scan.batch
    if scan.invalid is not None:
        raise DamagedLog(f"{file.path}: {scan.invalid.reason} at offset {scan.invalid.offset}; it is not compacted")


def _records(batch: memoryview) -> list[PackedRecord] | None:
    """The records of a batch; None if its CRC is right but the batch cannot be opened, or cannot be written again."""
    try:
        records = list(packed_records_in(batch))
    except CorruptRecords:
        return None
    return records if all(-_MAX_TIME_MS < record.timestamp_ms < _MAX_TIME_MS for record in records) else None


def _aborted_transactions(filesystem: Filesystem, job: CompactionJob) -> list[AbortedTransaction]:
    aborted = list(job.aborted_later)
    for base_offset in job.segments:
        path = segment_file(job.directory, base_offset, Suffix.TXN_INDEX)
        if filesystem.exists(path):
            aborted += TransactionIndex.from_bytes(filesystem.read_bytes(path), base_offset=base_offset).entries()
    return sorted(aborted, key=lambda each: each.first_offset)


def _latest_offsets(
    filesystem: Filesystem, job: CompactionJob, aborted: list[AbortedTransaction]
) -> tuple[dict[bytes, int], int]:
    """The last offset of each key from the first dirty offset on, and the offset up to which memory sufficed."""
    latest: dict[bytes, int] = {}
    room = max(1, job.key_memory_bytes // BYTES_PER_KEY)
    transactions = _Transactions(aborted)
    for index, base_offset in enumerate(job.segments):
        end = job.segments[index + 1] if index + 1 < len(job.segments) else job.end_offset
        if end <= job.first_dirty_offset:
            continue
        for header, batch in _batches(filesystem, job.directory, base_offset):
            if header.control:
                transactions.marker(header, batch)
                continue
            if transactions.aborts(header) or header.last_offset < job.first_dirty_offset:
                continue
            for record in _records(batch) or ():
                if record.key is not None:
                    latest[key_identity(record.key)] = record.offset
            if len(latest) >= room:
                return latest, header.next_offset
    return latest, job.end_offset


def _groups(job: CompactionJob, clean_offset: int) -> Iterator[list[int]]:
    """Groups neighbouring segments that fit into one, so that small segments do not stay small for ever."""
    group: list[int] = []
    group_bytes = 0
    for index, (base_offset, size) in enumerate(zip(job.segments, job.sizes, strict=True)):
        if base_offset >= clean_offset:
            break
        end = job.segments[index + 1] if index + 1 < len(job.segments) else job.end_offset
        index_bytes = 12 * (group_bytes + size) // max(1, job.index_interval_bytes)
        if group and (
            group_bytes + size > job.segment_bytes
            or index_bytes > job.segment_index_bytes
            or end - group[0] > MAX_RELATIVE_OFFSET
        ):
            yield group
            group, group_bytes = [], 0
        group.append(base_offset)
        group_bytes += size
    if group:
        yield group


class _Transactions:
    """Tells which batches belong to aborted transactions, and which markers still have data before them."""

    def __init__(self, aborted: Sequence[AbortedTransaction]) -> None:
        self._coming = list(reversed(aborted))
        self._aborting: dict[int, AbortedTransaction] = {}
        self._seen_aborted: set[int] = set()
        self._seen_committed: set[int] = set()

    def aborts(self, header: BatchHeader) -> bool:
        """True if this data batch is part of a transaction that was aborted."""
        if not header.transactional:
            return False
        while self._coming and self._coming[-1].first_offset <= header.base_offset:
            entry = self._coming.pop()
            self._aborting[entry.producer_id] = entry
        entry_of_producer = self._aborting.get(header.producer_id)
        if entry_of_producer is not None and header.base_offset <= entry_of_producer.last_offset:
            self._seen_aborted.add(header.producer_id)
            return True
        self._seen_committed.add(header.producer_id)
        return False

    def marker(self, header: BatchHeader, batch: memoryview) -> tuple[bool, AbortedTransaction | None]:
        """Returns True if data of the marker's transaction is left, and the index entry if the marker aborts."""
        producer_id = header.producer_id
        marker = read_transaction_marker(batch) if header.record_count else None
        if marker is None or marker.committed:
            had_data = producer_id in self._seen_committed
            self._seen_committed.discard(producer_id)
            return had_data, None
        had_data = producer_id in self._seen_aborted
        self._seen_aborted.discard(producer_id)
        return had_data, self._aborting.pop(producer_id, None)


class _Cleaner:
    """Writes one new segment in place of a group of old ones."""

    def __init__(
        self,
        filesystem: Filesystem,
        job: CompactionJob,
        latest: Mapping[bytes, int],
        transactions: _Transactions,
        result: CompactionResult,
    ) -> None:
        self._filesystem = filesystem
        self._job = job
        self._latest = latest
        self._transactions = transactions
        self._result = result
        self._changed = False
        self._kept_transactions = TransactionIndex()
        self._pending = bytearray()
        self._position = 0

    def clean(self, group: list[int]) -> None:
        base_offset = group[0]
        directory = self._job.directory
        self._changed = len(group) > 1
        self._indexes = SegmentIndexes(base_offset, self._job.index_interval_bytes)
        path = segment_file(directory, base_offset, Suffix.LOG, Stage.CLEANED)
        self._file = self._filesystem.open(path, create=True)
        self._file.truncate(0)
        for old in group:
            for header, batch in _batches(self._filesystem, directory, old):
                self._result.records_read += header.record_count
                self._result.bytes_read += header.size
                kept = self._keep(header, batch)
                if kept is not batch:
                    self._changed = True
                if kept is not None:
                    self._write(header if kept is batch else read_header(kept), kept)
        self._finish(group)

    def _keep(self, header: BatchHeader, batch: memoryview) -> memoryview | bytearray | None:
        """The batch itself, a smaller one in its place, or None."""
        if header.control:
            return self._keep_marker(header, batch)
        if self._transactions.aborts(header):
            return self._keep_empty(header, batch)
        # Behind the end of the first pass a tombstone's time must not begin: it may go only after the records that it
        # deletes.
        records = _records(batch) if header.base_offset < self._result.clean_offset else None
        if records is None:
            self._result.records_kept += header.record_count
            return batch
        horizon_ms = header.delete_horizon_ms
        kept: list[PackedRecord] = []
        tombstones = False
        for record in records:
            key = record.key
            if key is None or self._latest.get(key_identity(key), -1) > record.offset:
                continue
            if record.value is None:
                if self._due(horizon_ms):
                    self._result.dropped = max(self._result.dropped, record.offset)
                    continue
                tombstones = True
            kept.append(record)
        if not kept:
            return self._keep_empty(header, batch)
        self._result.records_kept += len(kept)
        if tombstones and horizon_ms is None:
            horizon_ms = self._job.wall_ms + self._job.delete_retention_ms
        elif len(kept) == header.record_count:
            return batch
        return _rebuilt(header, kept, horizon_ms)

    def _keep_marker(self, header: BatchHeader, batch: memoryview) -> memoryview | bytearray | None:
        if not header.record_count:
            return self._keep_empty(header, batch)
        had_data, aborted = self._transactions.marker(header, batch)
        if aborted is not None and had_data:
            self._kept_transactions.append(aborted)
        if had_data:
            return batch
        horizon_ms = header.delete_horizon_ms
        if horizon_ms is None:
            return _rebuilt(header, packed_records_in(batch), self._job.wall_ms + self._job.delete_retention_ms)
        if not self._due(horizon_ms):
            return batch
        self._result.dropped = max(self._result.dropped, header.last_offset)
        return self._keep_empty(header, batch)

    def _due(self, horizon_ms: int | None) -> bool:
        """True if a deletion with this horizon is dropped."""
        return self._job.drops_deletions and horizon_ms is not None and horizon_ms <= self._job.wall_ms

    def _keep_empty(self, header: BatchHeader, batch: memoryview) -> memoryview | bytearray | None:
        last_of_producer = self._job.last_offsets.get(header.producer_id) == header.last_offset
        if not last_of_producer and header.next_offset != self._job.end_offset:
            return None
        return _rebuilt(header, (), None) if header.record_count else batch

    def _write(self, header: BatchHeader, batch: memoryview | bytearray) -> None:
        size = len(batch)
        self._indexes.note(self._position, size, header.last_offset, header.max_timestamp)
        self._position += size
        self._pending += batch
        if len(self._pending) >= WRITE_CHUNK_BYTES:
            self._flush()

    def _flush(self) -> None:
        if self._pending:
            self._file.append(bytes(self._pending))
            self._pending.clear()

    def _finish(self, group: list[int]) -> None:
        self._flush()
        if not self._changed:
            self._filesystem.remove(self._file.path)
            self._file.close()
            return
        self._indexes.close()
        directory, base_offset = self._job.directory, group[0]
        for suffix, content in (
            (Suffix.INDEX, self._indexes.offsets.to_bytes()),
            (Suffix.TIME_INDEX, self._indexes.times.to_bytes()),
            (Suffix.TXN_INDEX, self._kept_transactions.to_bytes()),
        ):
            path = segment_file(directory, base_offset, suffix, Stage.CLEANED)
            if content or suffix is not Suffix.TXN_INDEX:
                self._filesystem.replace(path, content)
            elif self._filesystem.exists(path):
                # A file of an abandoned compaction would be taken for this one's.
                self._filesystem.remove(path)
        self._file.sync()
        self._filesystem.sync_directory(directory)
        self._file.close()
        self._result.bytes_written += self._position
        self._result.replacements.append(Replacement(tuple(group), base_offset))


def _rebuilt(header: BatchHeader, records: Iterable[PackedRecord], horizon_ms: int | None) -> bytearray:
    """Rebuilds a batch with only these records, at the same offsets, with the same end, producer and sequence."""
    kept = list(records)
    return build_batch(
        [(record.timestamp_ms, record.key, record.value, record.headers) for record in kept],
        base_offset=header.base_offset,
        offset_deltas=[record.offset - header.base_offset for record in kept],
        last_offset_delta=header.last_offset_delta,
        codec=header.codec,
        leader_epoch=header.partition_leader_epoch,
        producer_id=header.producer_id,
        producer_epoch=header.producer_epoch,
        base_sequence=header.base_sequence,
        transactional=header.transactional,
        control=header.control,
        log_append_time_ms=header.max_timestamp if header.log_append_time else None,
        delete_horizon_ms=horizon_ms,
    )
