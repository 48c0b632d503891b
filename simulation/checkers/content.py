"""Checks the content of the logs against the ledger, from the first byte to the last, batch by batch.

Every batch is whole and at its offset; every record was sent by a client, and occurs no more often than allowed; every
record that was acknowledged or seen is at its offset, unchanged; each producer's sequence has no gap.
"""

from collections.abc import Iterator

from cordwood.log.log import Log
from cordwood.node.node import Node
from cordwood.node.partitions.partition import Partition
from cordwood.records.batch import BatchHeader, batches_in, crc_is_right
from cordwood.records.records import Record, records_in
from simulation.world.broken import InvariantBroken
from simulation.world.ledger import Ledger, PartitionLedger, identity_of, lasting_part

READ_BYTES = 1 << 16
SEQUENCES = 1 << 31


def check_content(node: Node, ledger: Ledger) -> None:
    """Checks all partitions of the running broker."""
    for partition in node.hosted:
        topic, index = partition.name
        if topic.startswith("__"):
            continue
        known = ledger.partition(partition.topic_id, topic, index)
        if known.records or known.promises or node.logs.has_log(partition.name):
            _PartitionCheck(partition, known, ledger).run()


def read_batches(log: Log, from_offset: int | None = None) -> Iterator[tuple[BatchHeader, bytes]]:
    """All batches in the log, committed or not, from its start or from an offset on."""
    offset = log.offsets.start if from_offset is None else from_offset
    while True:
        part = log.read(offset, READ_BYTES, end_offset=log.offsets.end, minimum_one_batch=True)
        if part is None:
            return
        data = part.file.read(part.position, part.length)
        next_offset = offset
        for position, header in batches_in(data):
            yield header, data[position : position + header.size]
            next_offset = header.next_offset
        if next_offset <= offset:
            raise InvariantBroken(f"{log.partition}: reading does not go on at offset {offset}")
        offset = next_offset


class _PartitionCheck:
    def __init__(self, partition: Partition, known: PartitionLedger, ledger: Ledger) -> None:
        self._log = partition.replica.log
        self._high_watermark = partition.replica.high_watermark
        self._compacted = known.may_be_compacted
        self._known = known
        self._ledger = ledger
        self._found: dict[int, bytes] = {}
        self._batches: dict[int, bytes] = {}
        self._places: dict[bytes, int] = {}
        self._sequences: dict[tuple[int, int], int] = {}

    def run(self) -> None:
        log = self._log
        expected: int | None = None
        epoch = -1
        for header, batch in read_batches(log):
            if not crc_is_right(batch, 0, header.size):
                raise self._broken(f"the batch at offset {header.base_offset} has another CRC than it says")
            if expected is None:
                starts_well = header.last_offset >= log.offsets.start and (
                    self._compacted or header.base_offset <= log.offsets.start
                )
            else:
                starts_well = header.base_offset == expected or (self._compacted and header.base_offset > expected)
            if not starts_well:
                raise self._broken(f"a batch begins at {header.base_offset} where {expected} must come")
            if header.partition_leader_epoch < epoch:
                raise self._broken(f"leader epoch {header.partition_leader_epoch} follows {epoch}")
            epoch, expected = header.partition_leader_epoch, header.next_offset
            self._check_sequence(header)
            self._batches[header.base_offset] = batch
            for record in records_in(batch):
                self._check_record(record)
        end = log.offsets.start if expected is None else expected
        if end != log.offsets.end and not (self._compacted and end < log.offsets.end):
            raise self._broken(f"its last batch ends at {end} and the log at {log.offsets.end}")
        self._check_promises()

    def _check_record(self, record: Record) -> None:
        identity = identity_of(record)
        sent = self._ledger.sent.get(identity)
        if sent is None:
            raise self._broken(f"nobody sent {identity!r} at offset {record.offset}")
        before = self._places.setdefault(identity, record.offset)
        if before != record.offset and not sent.may_repeat:
            raise self._broken(f"{identity!r} of {sent.producer} is at offset {before} and again at {record.offset}")
        self._found[record.offset] = identity
        if record.offset < self._log.offsets.start:
            return
        if record.offset < self._high_watermark or record.offset in self._known.records:
            self._known.know(record.offset, record)

    def _check_sequence(self, header: BatchHeader) -> None:
        if header.producer_id < 0 or self._compacted:
            return
        key = (header.producer_id, header.producer_epoch)
        expected = self._sequences.get(key)
        if expected is not None and header.base_sequence != expected:
            raise self._broken(f"producer {key} goes on with sequence {header.base_sequence} instead of {expected}")
        self._sequences[key] = (header.last_sequence + 1) % SEQUENCES

    def _check_promises(self) -> None:
        start, known = self._log.offsets.start, self._known
        may_begin = start if known.may_expire else min(start, known.deletable_before)
        for offset, identity in known.records.items():
            if offset >= may_begin and offset not in self._found and not self._may_be_gone(offset, identity):
                raise self._broken(f"{identity!r} was at offset {offset} and is gone; the log is {self._log!r}")
        if self._compacted:
            return
        for promise in known.promises.values():
            if promise.last_offset < start:
                continue
            batch = self._batches.get(promise.base_offset)
            if batch is None or lasting_part(batch) != promise.lasting:
                raise self._broken(
                    f"what was acknowledged at {promise.base_offset} to {promise.last_offset} is not what is there"
                )

    def _may_be_gone(self, offset: int, identity: bytes) -> bool:
        """True if compaction may have removed the record: a later record has its key, or it is a tombstone."""
        if not self._compacted:
            return False
        if identity in self._known.tombstones:
            return True
        key = self._known.keys[identity]
        return any(self._known.keys.get(later) == key for place, later in self._found.items() if place > offset) or any(
            self._known.keys[later] == key for place, later in self._known.records.items() if place > offset
        )

    def _broken(self, reason: str) -> InvariantBroken:
        return InvariantBroken(f"{self._known.name}: {reason}")
