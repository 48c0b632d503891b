"""Gathers Spark's Arrow batches and brings them to the columns of records, without a Python object per row.

A block is the unit of partitioning and encoding. Spark's batches (10,000 rows) are small for a topic with many
partitions, so several are put together while that costs no waiting: larger record batches compress better and cost the
broker less.
"""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from cordwood.spark.sink.columns import SinkColumns

BLOCK_BYTES = 4 << 20
"""Enough for full record batches, little enough for a task to send one block while it encodes the next."""


class UnwritableRow(ValueError):
    """A row cannot become a record; the message names the column and says what to do."""


@dataclass(frozen=True, slots=True)
class Block:
    """Rows as the columns of records: Arrow arrays, or None if there is no such column."""

    count: int
    key: Any
    value: Any
    headers: Any
    """Lists of struct<key: string, value: binary>."""
    topic: Any
    """None if the option names the topic."""
    partition: Any
    """Integers; null if the key decides."""
    timestamp_ms: npt.NDArray[np.int64] | int


def gather(
    batches: Iterator[Any],
    linger_ms: int,
    *,
    block_bytes: int = BLOCK_BYTES,
    clock: Callable[[], float] = time.monotonic,
) -> Iterator[Any]:
    """Puts RecordBatches with rows together up to `block_bytes`, or until one arrives after the first has waited
    `linger_ms`: Spark does not tell whether another will come."""
    held: list[Any] = []
    held_bytes = 0
    since = 0.0
    for batch in batches:
        if batch.num_rows == 0:
            continue
        if not held:
            since = clock()
        held.append(batch)
        held_bytes += batch.nbytes
        if held_bytes >= block_bytes or (clock() - since) * 1000 >= linger_ms:
            yield _one(held)
            held, held_bytes = [], 0
    if held:
        yield _one(held)


def _one(batches: list[Any]) -> Any:
    if len(batches) == 1:
        return batches[0]
    return pa.Table.from_batches(batches).combine_chunks().to_batches()[0]


def to_block(batch: Any, columns: SinkColumns, now_ms: int) -> Block:
    """Converts a batch. Raises UnwritableRow for values that no record can hold."""

    def column(position: int | None) -> Any:
        return None if position is None else batch.column(position)

    headers, timestamp = column(columns.headers), column(columns.timestamp)
    if headers is not None:
        _check_headers(headers)
    return Block(
        count=batch.num_rows,
        key=column(columns.key),
        value=column(columns.value),
        headers=headers,
        topic=column(columns.topic),
        partition=column(columns.partition),
        timestamp_ms=now_ms if timestamp is None else _timestamps(timestamp, now_ms),
    )


def _check_headers(column: Any) -> None:
    entries = pc.list_flatten(column)
    if entries.null_count or pc.struct_field(entries, 0).null_count:
        raise UnwritableRow("Column 'headers' has a null entry or an entry with a null key: a header needs a key")


def _timestamps(column: Any, now_ms: int) -> npt.NDArray[np.int64] | int:
    if column.null_count == len(column):
        return now_ms
    if pa.types.is_floating(column.type):
        microseconds = pc.multiply(column, 1e6)  # Spark reads a float as seconds since 1970
        # The minimum below ignores NaN, so it does not find values that are no numbers.
        if not pc.all(pc.less(microseconds, float(2**63))).as_py():
            raise UnwritableRow("Column 'timestamp' has a number that is no time: a record cannot carry it")
    else:
        microseconds = column.cast(pa.timestamp("us", column.type.tz)).cast(pa.int64())
    if not pc.min(microseconds).as_py() >= 0:  # the comparison refuses NaN, too
        raise UnwritableRow("Column 'timestamp' has a time before 1970: a record cannot carry it")
    milliseconds = pc.divide(pc.cast(microseconds, pa.int64(), safe=False), 1000)
    filled: npt.NDArray[np.int64] = milliseconds.fill_null(now_ms).to_numpy(zero_copy_only=False)
    return filled
