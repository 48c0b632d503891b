"""The columns of decoded records: those of Spark's Kafka source, as Arrow arrays, and the producers of the records."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from cordwood.columnar import decode_kernels as kernels
from cordwood.records.batch import CONTROL_BIT, HEADER_SIZE, TRANSACTIONAL_BIT

if TYPE_CHECKING:
    from cordwood.columnar.compiled import Bytes, Longs

TIMESTAMP = pa.timestamp("us", tz="UTC")
HEADERS = pa.list_(pa.field("element", pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())])))
"""Spark's type of headers: array<struct<key: string, value: binary>>."""


@dataclass(frozen=True, slots=True)
class Origin:
    """The writer of each record, as its batch names it."""

    producer_id: pa.Int64Array
    """-1: a producer without one."""
    producer_epoch: pa.Int32Array
    sequence: pa.Int32Array
    """The record's number among those that its producer sent to this partition; -1: there is none."""
    transactional: pa.BooleanArray
    control: pa.BooleanArray
    """Whether the record is no client's: the end of a transaction, say."""


@dataclass(frozen=True, slots=True)
class Columns:
    """The records of one partition, one row each, in the order of the log. None stands for a column not asked for."""

    count: int
    key: pa.BinaryArray | None
    value: pa.BinaryArray | None
    offset: pa.Int64Array
    timestamp: pa.TimestampArray
    """Microseconds, UTC. Times beyond 64 bits, 292,000 years away, are clamped to the end of the scale."""
    timestamp_type: pa.Int32Array
    """0: the producer's time, 1: the broker's when it appended the record."""
    headers: pa.ListArray | None
    """Never null: a record without headers has an empty list. Where a name is not UTF-8, it has U+FFFD."""
    origin: Origin | None = None
    """Only if the origin was requested."""


_FIELDS = np.dtype(
    {
        "names": ["producer_id", "producer_epoch", "base_sequence"],
        "formats": [">i8", ">i2", ">i4"],
        "offsets": [43, 51, 53],
        "itemsize": HEADER_SIZE,
    }
)


def origin_of(wire: "Bytes", batches: "Longs", offsets: "Longs") -> Origin:
    """The origin of records, from the headers of their batches."""
    headers = np.lib.stride_tricks.sliding_window_view(wire, HEADER_SIZE)[batches[:, kernels.POSITION]]
    fields = np.ascontiguousarray(headers).view(_FIELDS)[:, 0]
    of_batch = np.searchsorted(batches[:, kernels.BASE_OFFSET], offsets, side="right") - 1
    base_sequence = fields["base_sequence"][of_batch].astype(np.int64)
    counted = (base_sequence + offsets - batches[of_batch, kernels.BASE_OFFSET]) & 0x7FFF_FFFF
    attributes = batches[of_batch, kernels.ATTRIBUTES]
    return Origin(
        producer_id=pa.array(fields["producer_id"][of_batch].astype(np.int64)),
        producer_epoch=pa.array(fields["producer_epoch"][of_batch].astype(np.int32)),
        sequence=pa.array(np.where(base_sequence < 0, -1, counted).astype(np.int32)),
        transactional=pa.array(attributes & TRANSACTIONAL_BIT != 0),
        control=pa.array(attributes & CONTROL_BIT != 0),
    )
