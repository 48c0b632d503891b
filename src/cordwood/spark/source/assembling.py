"""Assembles decoded records to Arrow batches for Spark: its schema exactly, neither tiny nor huge.

Small pieces, of many partitions perhaps, are gathered until they are worth a batch; large ones are handed out in
slices. Rows keep the order in which they come.
"""

from collections.abc import Callable, Iterator
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from cordwood.columnar.columns import Columns, Origin
from cordwood.model.identifiers import TopicPartition

ROWS_WORTH_A_BATCH: Final = 20_000
BYTES_WORTH_A_BATCH: Final = 4 << 20
"""Less than a fetch brings, so that records of full answers are not copied."""
MAX_ROWS: Final = 100_000
MAX_BYTES: Final = 32 << 20
"""The most bytes of one batch: the JVM holds a few of them at a time."""

_COLUMN: dict[str, Callable[[Columns, TopicPartition], pa.Array]] = {
    "key": lambda columns, _: columns.key,
    "value": lambda columns, _: columns.value,
    "topic": lambda columns, partition: pa.repeat(pa.scalar(partition.topic, pa.string()), columns.count),
    "partition": lambda columns, partition: pa.repeat(pa.scalar(partition.partition, pa.int32()), columns.count),
    "offset": lambda columns, _: columns.offset,
    "timestamp": lambda columns, _: columns.timestamp,
    "timestampType": lambda columns, _: columns.timestamp_type,
    "headers": lambda columns, _: columns.headers,
    "producerId": lambda columns, _: _origin(columns).producer_id,
    "producerEpoch": lambda columns, _: _origin(columns).producer_epoch,
    "sequence": lambda columns, _: _origin(columns).sequence,
    "transactional": lambda columns, _: _origin(columns).transactional,
    "control": lambda columns, _: _origin(columns).control,
}


class Assembler:
    """Takes pieces with `add`, and the end with `finish`; both return the batches that are ready for Spark."""

    def __init__(
        self, schema: pa.Schema, *, min_timestamp_us: int | None = None, max_timestamp_us: int | None = None
    ) -> None:
        self._schema = schema
        self._min_timestamp_us = min_timestamp_us
        self._max_timestamp_us = max_timestamp_us
        self._gathered: list[pa.RecordBatch] = []
        self._rows = 0
        self._bytes = 0

    def add(self, columns: Columns, partition: TopicPartition) -> Iterator[pa.RecordBatch]:
        arrays = [_COLUMN[name](columns, partition) for name in self._schema.names]
        batch = pa.RecordBatch.from_arrays(arrays, schema=self._schema)
        mask = self._mask(columns)
        if mask is not None:
            batch = batch.filter(mask)
        if batch.num_rows == 0:
            return
        self._gathered.append(batch)
        self._rows += batch.num_rows
        self._bytes += batch.nbytes
        if self._rows >= ROWS_WORTH_A_BATCH or self._bytes >= BYTES_WORTH_A_BATCH:
            yield from self.finish()

    def finish(self) -> Iterator[pa.RecordBatch]:
        if not self._gathered:
            return
        whole = self._gathered[0] if len(self._gathered) == 1 else pa.concat_batches(self._gathered)
        rows_per_batch = max(1, min(MAX_ROWS, self._rows * MAX_BYTES // max(1, self._bytes)))
        self._gathered, self._rows, self._bytes = [], 0, 0
        for first in range(0, whole.num_rows, rows_per_batch):
            yield whole.slice(first, rows_per_batch)

    def _mask(self, columns: Columns) -> pa.BooleanArray | None:
        mask = None
        if self._min_timestamp_us is not None:
            mask = pc.greater_equal(columns.timestamp, _time(self._min_timestamp_us))
        if self._max_timestamp_us is not None:
            below = pc.less_equal(columns.timestamp, _time(self._max_timestamp_us))
            mask = below if mask is None else pc.and_(mask, below)
        return mask


def _origin(columns: Columns) -> Origin:
    assert columns.origin is not None
    return columns.origin


def _time(microseconds: int) -> pa.Scalar:
    return pa.scalar(microseconds, pa.timestamp("us", tz="UTC"))
