"""Batches that a leader refused for a temporary reason: later batches are refused for the same reason.

A producer with sequence numbers has several requests in flight. If the reason ends between two of them, the second one
shows a gap, or is taken as the first batch of an unknown producer: then the order of its records changes. librdkafka
answers a gap with a new epoch in all partitions, and writes unacknowledged records again there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from cordwood.records.batch import HEADER_SIZE, BatchHeader, is_later, read_header

if TYPE_CHECKING:
    from collections.abc import Callable

    from cordwood.model.moment import Moment
    from cordwood.node.partitions.partition import Partition
    from cordwood.records.batch import Buffer

REMEMBERED_MS: Final = 30_000
"""A producer that has not repeated its batch by then has given it up."""
MOST_REMEMBERED: Final = 10_000


class _Refused(NamedTuple):
    leader_epoch: int
    producer_epoch: int
    sequence: int
    """The lowest sequence that was refused: the batch that has to come first."""
    until_ms: int
    refusal: Callable[[], Exception]


class RefusedBatches:
    def __init__(self) -> None:
        self._refused: dict[tuple[Partition, int], _Refused] = {}
        """By partition and producer id, the latest last."""

    def __bool__(self) -> bool:
        return bool(self._refused)

    def note(self, partition: Partition, batch: memoryview, refusal: Callable[[], Exception], now: Moment) -> None:
        """Notes that a client's batch was refused, for a temporary reason. `refusal` makes the exception again: an
        exception that was raised keeps the batch in memory."""
        header = numbered(batch)
        if header is None:
            return
        key, epoch, sequence = (partition, header.producer_id), header.producer_epoch, header.base_sequence
        before = self._refused.pop(key, None)
        if before is not None and before.producer_epoch == epoch and is_later(sequence, before.sequence):
            sequence = before.sequence
        until_ms = now.boot_ms + REMEMBERED_MS
        self._refused[key] = _Refused(partition.replica.leader_epoch, epoch, sequence, until_ms, refusal)
        for oldest, refused in list(self._refused.items()):
            if len(self._refused) <= MOST_REMEMBERED and refused.until_ms > now.boot_ms:
                break
            del self._refused[oldest]

    def check(self, partition: Partition, batch: memoryview, now: Moment) -> None:
        """Raises the reason for which the previous batch was refused. Forgets it if this is the refused batch."""
        header = numbered(batch)
        key = (partition, -1 if header is None else header.producer_id)
        refused = self._refused.get(key)
        if refused is None or header is None:
            return
        if (
            refused.until_ms > now.boot_ms
            and refused.leader_epoch == partition.replica.leader_epoch
            and refused.producer_epoch == header.producer_epoch
        ):
            if is_later(header.base_sequence, refused.sequence):
                raise refused.refusal()
            if header.base_sequence != refused.sequence:
                # A batch older than the refused one is repeated.
                return
        del self._refused[key]


def numbered(batch: Buffer) -> BatchHeader | None:
    """The header of a batch with a producer id and sequence numbers."""
    header = read_header(batch) if len(batch) >= HEADER_SIZE else None
    return header if header is not None and header.producer_id >= 0 and header.base_sequence >= 0 else None
