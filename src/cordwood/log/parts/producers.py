"""The producers of a partition: their state tells a retry from a new batch, and an open transaction from a finished
one.

Each producer id has its current epoch, its last five batches, and the start of its open transaction. `check` decides
about a batch and changes nothing; `appended` and `ended` change the state once the bytes are in the log. The state is a
function of the log's bytes: a snapshot only saves a replay.
"""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from cordwood.log.parts.producer_bounds import SHARED, ProducerBounds
from cordwood.model.errors import ErrorCode, ProtocolError
from cordwood.model.identifiers import NO_TIMESTAMP_MS
from cordwood.records.batch import CONTROL_BIT, MAX_SEQUENCE, TRANSACTIONAL_BIT, BatchHeader, Buffer, is_later
from cordwood.records.control import TransactionMarker, known_marker_in
from cordwood.segments.producer_snapshot import FORGOTTEN_EARLY, ProducerSnapshotEntry
from cordwood.segments.transaction_index import AbortedTransaction, OpenTransactions

WINDOW = 5
"""Clients have at most this many batches in flight, so a retry is always one of the last five."""

NO_SEQUENCE = -1
"""The last sequence of a producer with only a transaction marker: sequence 0 comes next."""

NO_COORDINATOR_EPOCH = -1
NEVER_MS = -(2**62)


class BatchTrace(NamedTuple):
    """Sequences and offsets of an appended batch."""

    first_sequence: int
    last_sequence: int
    first_offset: int
    last_offset: int
    timestamp_ms: int


class Producer:
    """One producer id in one partition."""

    __slots__ = ("batches", "coordinator_epoch", "epoch", "last_seen_ms", "last_timestamp_ms")

    def __init__(self, epoch: int, last_seen_ms: int) -> None:
        self.epoch = epoch
        self.coordinator_epoch = NO_COORDINATOR_EPOCH
        self.last_seen_ms = last_seen_ms
        """The time of the last batch or marker, by the broker's clock."""
        self.last_timestamp_ms = NO_TIMESTAMP_MS
        """The timestamp in the last batch or marker: it shows operators the age of a hanging transaction."""
        self.batches: list[BatchTrace] = []
        """The last five batches of this epoch, oldest first."""


class ProducerDescription(NamedTuple):
    """One row of a DescribeProducers answer."""

    producer_id: int
    producer_epoch: int
    last_sequence: int
    last_timestamp_ms: int
    coordinator_epoch: int
    transaction_start_offset: int


class ProducerStates:
    """All producers of one partition."""

    __slots__ = ("__weakref__", "_bounds", "_ended", "_forgot_ms", "_open", "_producers")

    def __init__(self, bounds: ProducerBounds = SHARED) -> None:
        self._producers: dict[int, Producer] = {}
        self._bounds = bounds
        self._forgot_ms = NEVER_MS
        """The time at which a producer was last forgotten before its expiration."""
        bounds.watch(self)
        self._open = OpenTransactions()
        self._ended: list[tuple[int, int]] = []
        """First offset and marker offset of ended transactions whose marker may not be below the high watermark yet."""

    def __len__(self) -> int:
        return len(self._producers)

    @property
    def first_open_offset(self) -> int | None:
        """The first offset of the oldest open transaction."""
        return self._open.first_offset

    def knows(self, producer_id: int) -> bool:
        return producer_id in self._producers

    def in_transaction(self, producer_id: int, epoch: int) -> bool:
        """True if this producer, in this epoch, has an open transaction in the partition."""
        producer = self._producers.get(producer_id)
        return producer is not None and producer.epoch == epoch and self._open.first_offset_of(producer_id) is not None

    def epoch_in_transaction(self, producer_id: int) -> int | None:
        """The epoch of this producer's open transaction; None if it has none."""
        if self._open.first_offset_of(producer_id) is None:
            return None
        return self._producers[producer_id].epoch

    def coordinator_epoch_of(self, producer_id: int) -> int:
        """The epoch of the coordinator that ended this producer's last transaction in the partition."""
        producer = self._producers.get(producer_id)
        return NO_COORDINATOR_EPOCH if producer is None else producer.coordinator_epoch

    def check(self, header: BatchHeader) -> BatchTrace | None:
        """The trace of the batch that this batch repeats; None if it may be appended. Raises ProtocolError for a bad
        sequence.

        Called for a client's batch with a producer id, before it is written.
        """
        producer = self._producers.get(header.producer_id)
        if producer is None:
            if self._forgot_ms != NEVER_MS and header.base_sequence != 0:
                raise ProtocolError(
                    ErrorCode.UNKNOWN_PRODUCER_ID,
                    f"Producer {header.producer_id} is unknown: beyond a limit idle producers are forgotten.",
                )
            # A new or expired producer: its first sequence cannot be compared.
            return None
        epoch, first_sequence = header.producer_epoch, header.base_sequence
        if epoch != producer.epoch:
            if epoch < producer.epoch:
                raise ProtocolError(
                    ErrorCode.INVALID_PRODUCER_EPOCH,
                    f"Producer {header.producer_id} has epoch {producer.epoch}; {epoch} is older.",
                )
            if first_sequence != 0:
                raise _out_of_order(header, "a new epoch starts with sequence 0")
            self._check_transaction(header)
            return None
        batches = producer.batches
        last_sequence = batches[-1].last_sequence if batches else NO_SEQUENCE
        if first_sequence != (last_sequence + 1) & MAX_SEQUENCE:
            end = header.last_sequence
            for trace in reversed(batches):
                if trace.first_sequence == first_sequence and trace.last_sequence == end:
                    self._check_repeated(header, trace)
                    return trace
            raise _out_of_order(header, f"{(last_sequence + 1) & MAX_SEQUENCE} must come next")
        self._check_transaction(header)
        return None

    def lacks_earlier(self, header: BatchHeader) -> bool:
        """True if batches that the producer numbered before this one are not in the log. They may still come, unless
        the producer expired or its records were deleted."""
        producer = self._producers.get(header.producer_id)
        first_sequence = header.base_sequence
        if producer is None:
            return first_sequence != 0 and self._forgot_ms == NEVER_MS
        if header.producer_epoch != producer.epoch:
            return first_sequence != 0 and header.producer_epoch > producer.epoch
        last_sequence = producer.batches[-1].last_sequence if producer.batches else NO_SEQUENCE
        return is_later(first_sequence, (last_sequence + 1) & MAX_SEQUENCE)

    def _check_repeated(self, header: BatchHeader, trace: BatchTrace) -> None:
        """Refuses a batch with the sequence of a batch whose transaction has ended: no client repeats such a batch.
        librdkafka gives the sequence numbers of records that an abort purged to records of its next transaction: an
        answer as duplicates would lose these records."""
        if header.attributes & TRANSACTIONAL_BIT:
            first_open = self._open.first_offset_of(header.producer_id)
            if first_open is None or trace.first_offset < first_open:
                raise _out_of_order(header, "the transaction of its batch with this sequence has ended")

    def _check_transaction(self, header: BatchHeader) -> None:
        """Refuses a batch outside of the producer's open transaction, in any epoch: with a higher epoch the
        transaction's marker would be refused, and the transaction would never end."""
        if not header.attributes & TRANSACTIONAL_BIT and self._open.first_offset_of(header.producer_id) is not None:
            raise ProtocolError(
                ErrorCode.INVALID_TXN_STATE,
                f"Producer {header.producer_id} has an open transaction here and sent a batch outside of it.",
            )

    def check_marker(self, header: BatchHeader, marker: TransactionMarker) -> None:
        """Refuses the marker of an older coordinator epoch or producer epoch."""
        producer = self._producers.get(header.producer_id)
        if producer is None:
            return
        if header.producer_epoch < producer.epoch:
            raise ProtocolError(
                ErrorCode.INVALID_PRODUCER_EPOCH,
                f"Producer {header.producer_id} has epoch {producer.epoch}; the marker's {header.producer_epoch} "
                "is older.",
            )
        if marker.coordinator_epoch < producer.coordinator_epoch:
            raise ProtocolError(
                ErrorCode.TRANSACTION_COORDINATOR_FENCED,
                f"The last marker for producer {header.producer_id} came from coordinator epoch "
                f"{producer.coordinator_epoch}; a marker of epoch {marker.coordinator_epoch} is refused.",
            )

    def appended(
        self,
        producer_id: int,
        epoch: int,
        first_sequence: int,
        first_offset: int,
        last_offset: int,
        timestamp_ms: int,
        boot_ms: int,
        transactional: bool,
    ) -> None:
        """Notes a batch of this producer that is in the log."""
        producer = self._producers.get(producer_id)
        if producer is None:
            producer = self._add(producer_id, epoch, boot_ms)
        else:
            producer.last_seen_ms = boot_ms
            if producer.epoch != epoch:
                producer.epoch = epoch
                producer.batches = []
        producer.last_timestamp_ms = timestamp_ms
        last_sequence = (first_sequence + last_offset - first_offset) & MAX_SEQUENCE
        batches = producer.batches
        batches.append(BatchTrace(first_sequence, last_sequence, first_offset, last_offset, timestamp_ms))
        if len(batches) > WINDOW:
            del batches[0]
        if transactional:
            self._open.data(producer_id, first_offset)

    def ended(
        self, header: BatchHeader, marker: TransactionMarker, marker_offset: int, boot_ms: int
    ) -> AbortedTransaction | None:
        """Notes a marker that is in the log. Returns the entry for the transaction index if it aborts records."""
        producer_id = header.producer_id
        producer = self._producers.get(producer_id)
        if producer is None:
            producer = self._add(producer_id, header.producer_epoch, boot_ms)
        elif producer.epoch != header.producer_epoch:
            producer.epoch = header.producer_epoch
            producer.batches = []
        producer.coordinator_epoch = marker.coordinator_epoch
        producer.last_seen_ms = boot_ms
        producer.last_timestamp_ms = header.max_timestamp
        first_offset = self._open.first_offset_of(producer_id)
        if first_offset is not None:
            self._ended.append((first_offset, marker_offset))
        return self._open.marker(producer_id, marker_offset, committed=marker.committed)

    def replay(self, header: BatchHeader, batch: Buffer, boot_ms: int) -> AbortedTransaction | None:
        """Notes a batch that is in the log already; reads `batch` only if it is a control batch."""
        if header.producer_id < 0:
            return None
        attributes = header.attributes
        if attributes & CONTROL_BIT:
            marker = known_marker_in(header, batch)
            return None if marker is None else self.ended(header, marker, header.base_offset, boot_ms)
        self.appended(
            header.producer_id,
            header.producer_epoch,
            header.base_sequence,
            header.base_offset,
            header.last_offset,
            header.max_timestamp,
            boot_ms,
            bool(attributes & TRANSACTIONAL_BIT),
        )
        return None

    def last_stable_offset(self, high_watermark: int) -> int:
        """The end for read_committed readers.

        A transaction is undecided for readers as long as its marker is not below the high watermark.
        """
        stable = high_watermark
        first_open = self._open.first_offset
        if first_open is not None and first_open < stable:
            stable = first_open
        self.committed_to(high_watermark)
        for first, _ in self._ended:
            stable = min(stable, first)
        return stable

    def committed_to(self, high_watermark: int) -> None:
        """Forgets ended transactions whose marker is below the high watermark."""
        if self._ended:
            self._ended = [(first, marker) for first, marker in self._ended if marker >= high_watermark]

    @property
    def undecided(self) -> int:
        """The number of ended transactions whose marker may not be below the high watermark yet."""
        return len(self._ended)

    def _add(self, producer_id: int, epoch: int, boot_ms: int) -> Producer:
        self._bounds.added(self, 1, boot_ms)
        producer = self._producers[producer_id] = Producer(epoch, boot_ms)
        return producer

    def forget_silent(self, how_many: int, boot_ms: int) -> int:
        """Forgets the producers silent for longest, although they have not expired; returns their number.

        Producers with an open transaction stay, for the marker.
        """
        silent = [
            (producer.last_seen_ms, producer_id)
            for producer_id, producer in self._producers.items()
            if self._open.first_offset_of(producer_id) is None
        ]
        silent.sort()
        del silent[how_many:]
        for _, producer_id in silent:
            del self._producers[producer_id]
        if silent:
            self._forgot_ms = boot_ms
        return len(silent)

    def expire(self, boot_ms: int, expiration_ms: int) -> int:
        """Forgets producers that were silent for `expiration_ms` and have no open transaction; returns their number."""
        if boot_ms - self._forgot_ms >= expiration_ms:
            # All producers that were forgotten early would have expired by now.
            self._forgot_ms = NEVER_MS
        silent = [
            producer_id
            for producer_id, producer in self._producers.items()
            if boot_ms - producer.last_seen_ms >= expiration_ms and self._open.first_offset_of(producer_id) is None
        ]
        for producer_id in silent:
            del self._producers[producer_id]
        return len(silent)

    def describe(self) -> list[ProducerDescription]:
        """All producers, by id."""
        open_since = self._open.first_offsets
        return [
            ProducerDescription(
                producer_id,
                producer.epoch,
                producer.batches[-1].last_sequence if producer.batches else -1,
                producer.last_timestamp_ms,
                producer.coordinator_epoch,
                open_since.get(producer_id, -1),
            )
            for producer_id, producer in sorted(self._producers.items())
        ]

    def last_offsets(self) -> dict[int, int]:
        """The last offset of each producer: compaction keeps at least the header of that batch."""
        return {
            producer_id: producer.batches[-1].last_offset
            for producer_id, producer in self._producers.items()
            if producer.batches
        }

    def snapshot_entries(self) -> Iterator[ProducerSnapshotEntry]:
        """The entries of a snapshot: one per remembered batch, oldest first.

        Kafka writes only the last batch of each producer and, when reading, lets a later entry of a producer replace an
        earlier one. So Kafka can read this snapshot, and a restart of ours keeps the whole window: a client with five
        batches in flight can repeat all of them. A separate entry says that producers were forgotten early.
        """
        if self._forgot_ms != NEVER_MS:
            yield ProducerSnapshotEntry(FORGOTTEN_EARLY, -1, NO_SEQUENCE, -1, 0, self._forgot_ms, -1, -1)
        open_since = self._open.first_offsets
        for producer_id, producer in sorted(self._producers.items()):
            first_open = open_since.get(producer_id, -1)
            for trace in producer.batches or (BatchTrace(-1, NO_SEQUENCE, -1, -1, producer.last_timestamp_ms),):
                yield ProducerSnapshotEntry(
                    producer_id,
                    producer.epoch,
                    trace.last_sequence,
                    trace.last_offset,
                    trace.last_offset - trace.first_offset,
                    trace.timestamp_ms,
                    producer.coordinator_epoch,
                    first_open,
                )

    @classmethod
    def from_snapshot(
        cls, entries: Iterable[ProducerSnapshotEntry], boot_ms: int, bounds: ProducerBounds = SHARED
    ) -> "ProducerStates":
        """The saved state. Silence is counted anew, since a record's own timestamp says nothing about it."""
        states = cls(bounds)
        open_since: dict[int, int] = {}
        for entry in entries:
            if entry.producer_id == FORGOTTEN_EARLY:
                states._forgot_ms = entry.timestamp_ms
                continue
            producer = states._producers.get(entry.producer_id)
            if producer is None or producer.epoch != entry.producer_epoch:
                producer = states._producers[entry.producer_id] = Producer(entry.producer_epoch, boot_ms)
            producer.coordinator_epoch = entry.coordinator_epoch
            producer.last_timestamp_ms = entry.timestamp_ms
            if entry.last_sequence != NO_SEQUENCE:
                first_sequence = (entry.last_sequence - entry.offset_delta) & MAX_SEQUENCE
                first_offset = entry.last_offset - entry.offset_delta
                producer.batches.append(
                    BatchTrace(first_sequence, entry.last_sequence, first_offset, entry.last_offset, entry.timestamp_ms)
                )
                del producer.batches[:-WINDOW]
            if entry.transaction_first_offset >= 0:
                open_since[entry.producer_id] = entry.transaction_first_offset
        states._open = OpenTransactions(open_since)
        states._bounds.added(states, len(states), boot_ms)
        return states


def _out_of_order(header: BatchHeader, reason: str) -> ProtocolError:
    return ProtocolError(
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        f"Producer {header.producer_id} sent sequence {header.base_sequence} in epoch {header.producer_epoch}: "
        f"{reason}.",
    )
