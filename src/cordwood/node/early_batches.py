"""Batches that reach a new leader before the batch that their producer sent to the leader before it.

The former leader loses that batch, which it has not acknowledged. The producer repeats it when it hears so, and the
next one may be at the new leader by then. There that one shows a gap, which closes by itself. librdkafka answers
OUT_OF_ORDER_SEQUENCE_NUMBER with the abort of its transaction, or with a new epoch in all partitions, in which it
writes again what waits for its ack (docs/decisions/gaps-after-elections.md).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cordwood.model.errors import ErrorCode, ProtocolError
from cordwood.node.refused_batches import numbered

if TYPE_CHECKING:
    from cordwood.log.log import Log
    from cordwood.node.partition import Partition


def check_gap(partition: Partition, log: Log, batch: memoryview) -> None:
    """Refuses a batch that lacks earlier ones with an error after which its producer repeats it."""
    header = numbered(batch)
    if header is not None and log.replayed.producers.lacks_earlier(header):
        raise ProtocolError(
            ErrorCode.NOT_ENOUGH_REPLICAS,
            f"Producer {header.producer_id} sent sequence {header.base_sequence} in epoch {header.producer_epoch} to a "
            f"new leader of {partition.name}, which waits for the batches before it: send this one again.",
        )
