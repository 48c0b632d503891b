"""The ledger: records that clients sent, were promised and saw. Checkers hold the log to it.

Partitions belong to a topic's id, not to its name: a topic that is deleted and created again is another topic. Every
record has an identity of its own in its first header, by which it is recognised at any offset.
"""

import struct
from collections.abc import Callable
from typing import NamedTuple

from cordwood.model.identifiers import TopicId, TopicPartition
from cordwood.records.batch import HEADER_SIZE, TIMESTAMP_TYPE_BIT, Buffer, read_header
from cordwood.records.records import Record, records_in
from simulation.world.broken import InvariantBroken

IDENTITY_HEADER = "id"

_LASTING_FIELDS = struct.Struct(">hiqqhii")


class Sent(NamedTuple):
    """A record on its way into the log."""

    producer: str
    may_repeat: bool
    """True if the record may be in a partition more than once: a producer without idempotence may send it again."""


class Promise(NamedTuple):
    """An acknowledgement: these bytes are at these offsets."""

    base_offset: int
    last_offset: int
    lasting: bytes
    on_disk: bool
    """True if the topic has ack.durability=disk: the promise holds for ever. Otherwise a power cut may take it back."""


def identity_of(record: Record) -> bytes:
    for name, value in record.headers:
        if name == IDENTITY_HEADER and value is not None:
            return value
    raise InvariantBroken(f"the record at offset {record.offset} was sent by nobody: {record}")


def lasting_part(batch: Buffer) -> bytes:
    """The part of a batch that must never change: all but its offset, its epoch, and LogAppendTime stamps."""
    header = read_header(batch)
    return _LASTING_FIELDS.pack(
        header.attributes & ~TIMESTAMP_TYPE_BIT,
        header.last_offset_delta,
        header.base_timestamp,
        header.producer_id,
        header.producer_epoch,
        header.base_sequence,
        header.record_count,
    ) + bytes(batch[HEADER_SIZE:])


class PartitionLedger:
    """One partition of one topic, as clients know it."""

    def __init__(self, name: TopicPartition) -> None:
        self.name = name
        self.promises: dict[int, Promise] = {}
        """By base offset."""
        self.records: dict[int, bytes] = {}
        """The identity of the record that was seen or promised at an offset. It never changes."""
        self.keys: dict[bytes, bytes | None] = {}
        """The key of each identity."""
        self.tombstones: set[bytes] = set()
        self.durable_end = 0
        """The durable end of the log."""
        self.deletable_before = 0
        """The offset before which a client asked to delete records."""
        self.deleted_before = 0
        """The offset before which the broker acknowledged a deletion: these records never come back."""
        self.may_expire = False
        """True if the topic ever had a retention that can drop records during a run."""
        self.may_be_compacted = False
        self.lost_volatile = False
        """True if a power cut took visible records: then readers may find that the log diverged."""

    def know(self, offset: int, record: Record) -> None:
        """Notes that this record is at this offset, for all readers and for ever."""
        identity = identity_of(record)
        known = self.records.get(offset)
        if known is None:
            self.records[offset] = identity
            self.keys[identity] = record.key
            if record.value is None:
                self.tombstones.add(identity)
        elif known != identity:
            raise InvariantBroken(f"{self.name}: at offset {offset} was {known!r} and now is {identity!r}")

    def forget_volatile(self) -> None:
        """Forgets, after a power cut, records that were neither on disk nor promised to be."""
        self.promises = {
            base: promise
            for base, promise in self.promises.items()
            if promise.on_disk or promise.last_offset < self.durable_end
        }
        kept = {
            offset
            for promise in self.promises.values()
            for offset in range(promise.base_offset, promise.last_offset + 1)
        }
        records = {
            offset: identity for offset, identity in self.records.items() if offset < self.durable_end or offset in kept
        }
        self.lost_volatile = self.lost_volatile or len(records) < len(self.records)
        self.records = records


class Ledger:
    def __init__(self) -> None:
        self.sent: dict[bytes, Sent] = {}
        self.partitions: dict[tuple[TopicId, int], PartitionLedger] = {}
        self.promise_count = 0

    def partition(self, topic_id: TopicId, topic: str, index: int) -> PartitionLedger:
        ledger = self.partitions.get((topic_id, index))
        if ledger is None:
            ledger = self.partitions[topic_id, index] = PartitionLedger(TopicPartition(topic, index))
        return ledger

    def sending(self, batch: Buffer, producer: str, *, may_repeat: bool) -> None:
        for record in records_in(batch):
            self.sent[identity_of(record)] = Sent(producer, may_repeat)

    def promised(self, ledger: PartitionLedger, batch: Buffer, base_offset: int, *, on_disk: bool) -> None:
        """Notes an acknowledgement: the batch is at this offset."""
        last_offset = base_offset + read_header(batch).last_offset_delta
        lasting = lasting_part(batch)
        known = ledger.promises.get(base_offset)
        if known is not None and known.lasting != lasting:
            raise InvariantBroken(f"{ledger.name}: two batches were acknowledged at offset {base_offset}")
        ledger.promises[base_offset] = Promise(
            base_offset, last_offset, lasting, on_disk or (known is not None and known.on_disk)
        )
        self.promise_count += 1
        for delta, record in enumerate(records_in(batch)):
            ledger.know(base_offset + delta, record)

    def power_lost(self, hosted: Callable[[TopicId, int], bool] = lambda topic_id, index: True) -> None:
        """Takes a power cut of the machines that host these partitions."""
        for (topic_id, index), ledger in self.partitions.items():
            if hosted(topic_id, index):
                ledger.forget_volatile()
