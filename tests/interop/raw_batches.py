"""Batches to send with the raw client, and what a reader makes of those that it fetched."""

import time
from collections.abc import Iterable, Sequence

from cordwood.client.cluster import Fetched, ProducerIdentity
from cordwood.records.batch import batches_in
from cordwood.records.build import build_batch
from cordwood.records.records import records_in

NOBODY = ProducerIdentity(-1, -1)


def batch_of(
    values: Sequence[bytes],
    *,
    producer: ProducerIdentity = NOBODY,
    sequence: int = -1,
    transactional: bool = False,
    key: bytes | None = None,
    timestamp_ms: int | None = None,
    codec: int = 0,
) -> bytearray:
    if timestamp_ms is None:
        timestamp_ms = int(time.time() * 1000)  # retention would take what is old
    return build_batch(
        [(timestamp_ms + place, key, value, ()) for place, value in enumerate(values)],
        codec=codec,
        producer_id=producer.producer_id,
        producer_epoch=producer.producer_epoch,
        base_sequence=sequence,
        transactional=transactional,
    )


def records_of(fetched: Iterable[Fetched], *, committed: bool = False) -> list[tuple[int, bytes]]:
    """Offset and value of every record; with `committed`, without those of aborted transactions."""
    found: list[tuple[int, bytes]] = []
    for answer in fetched:
        aborted = set(answer.aborted) if committed else set()
        for position, header in batches_in(answer.records):
            if header.control:
                # The end of a transaction: what follows of this producer belongs to another one.
                aborted = {each for each in aborted if each[0] != header.producer_id or each[1] > header.base_offset}
                continue
            if any(id_ == header.producer_id and first <= header.base_offset for id_, first in aborted):
                continue
            batch = answer.records[position : position + header.size]
            found += [(record.offset, bytes(record.value or b"")) for record in records_in(batch)]
    return found
