"""Arrow batches as Spark hands them over, gathered and brought to the columns of records. No Python object per row.

A block is what is partitioned and encoded at once. Spark's batches are small (10,000 rows) where a topic has many
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
    """A row that cannot become a record; the message says which column is wrong and what to do."""


@dataclass(frozen=True, slots=True)
class Block:
    """Some rows, as the columns of records. Columns are Arrow arrays, None where there is no such column."""

    count: int
    key: Any
    value: Any
    headers: Any
    """Lists of struct<key: string, value: binary>."""
    topic: Any
    """None where the option names the topic."""
    partition: Any
    """Integers, null where the key decides."""
    timestamp_ms: npt.NDArray[np.int64] | int


def gather(
    batches: Iterator[Any],
    linger_ms: int,
    *,
    block_bytes: int = BLOCK_BYTES,
    clock: Callable[[], float] = time.monotonic,
) -> Iterator[Any]:
    """RecordBatches that hold rows, put together up to `block_bytes`, or until one comes when the first has waited
    `linger_ms`: Spark cannot be asked whether there will be another."""
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
    """Raises UnwritableRow for values that no record can hold."""

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
        microseconds = pc.multiply(column, 1e6)  # Spark reads such a column as seconds since 1970
        # The least of several numbers tells nothing of those that are none.
        if not pc.all(pc.less(microseconds, float(2**63))).as_py():
            raise UnwritableRow("Column 'timestamp' has a number that is no time: a record cannot carry it")
    else:
        microseconds = column.cast(pa.timestamp("us", column.type.tz)).cast(pa.int64())
    if not pc.min(microseconds).as_py() >= 0:  # not a number is refused too
        raise UnwritableRow("Column 'timestamp' has a time before 1970: a record cannot carry it")
    milliseconds = pc.divide(pc.cast(microseconds, pa.int64(), safe=False), 1000)
    filled: npt.NDArray[np.int64] = milliseconds.fill_null(now_ms).to_numpy(zero_copy_only=False)
    return filled
