"""The columns of decoded records: those of Spark's Kafka source, as Arrow arrays."""

from dataclasses import dataclass

import pyarrow as pa

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
