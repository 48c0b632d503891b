"""Batches that reach a new leader before an earlier batch that their producer sent to the former leader.

The former leader loses the earlier batch, which it has not acknowledged. The producer repeats that batch when it learns
of the loss. By then the next batch may be at the new leader, where it shows a gap that closes by itself. librdkafka
answers OUT_OF_ORDER_SEQUENCE_NUMBER with the abort of its transaction, or with a new epoch in all partitions, in which
it writes unacknowledged records again (docs/decisions/gaps-after-elections.md).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from cordwood.model.errors import ErrorCode, ProtocolError
from cordwood.node.partitions.refused_batches import numbered
from cordwood.node.partitions.role import Leading

if TYPE_CHECKING:
    from cordwood.log.log import Log
    from cordwood.model.identifiers import TopicPartition
    from cordwood.model.moment import Moment
    from cordwood.node.partitions.partition import Partition
    from cordwood.records.batch import Buffer

GAP_CLOSES_WITHIN_MS: Final = 75_000
"""librdkafka waits 60 s for an answer of a machine that is gone before it repeats a batch."""
FIRST_BATCH_WITHIN_MS: Final = 5_000
"""The wait for the first batch of a producer that the log does not know. The producer may also have expired, or all its
records were deleted: it does not wait for long, and not for as long as a transaction may last."""


class EarlyBatch(ProtocolError):
    """A batch that its producer has to repeat, after the batch before it."""

    def __init__(self, partition: TopicPartition) -> None:
        super().__init__(
            ErrorCode.NOT_ENOUGH_REPLICAS,
            f"The new leader of {partition} waits for an earlier batch of this producer: send this one again.",
        )


def is_early(partition: Partition, log: Log, batch: Buffer, now: Moment) -> bool:
    """True if an earlier batch of the producer may be on its way back from the former leader of the partition."""
    role = partition.role
    since_ms = role.took_over_ms if isinstance(role, Leading) else None
    if since_ms is None or now.boot_ms - since_ms >= GAP_CLOSES_WITHIN_MS:
        return False
    header = numbered(batch)
    if header is None:
        return False
    producers = log.replayed.producers
    may_expect = producers.knows(header.producer_id) or now.boot_ms - since_ms < FIRST_BATCH_WITHIN_MS
    return may_expect and producers.lacks_earlier(header)
