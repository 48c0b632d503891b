"""Assigns rows to partitions by key, as Apache Kafka's Java client does, and groups rows by partition."""

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from cordwood.columnar.arrays import byte_strings
from cordwood.columnar.compiled import numbers
from cordwood.columnar.partition_kernels import partition_keys, sort_rows

if TYPE_CHECKING:
    from cordwood.columnar.compiled import Ints, Longs


def murmur2_partitions(keys: pa.Array | pa.ChunkedArray, partition_count: int) -> "Ints":
    """The partition of each key, as the Java client's default partitioner has it; -1 where the key is null."""
    if partition_count <= 0:
        raise ValueError(f"{partition_count} partitions")
    parts = byte_strings(keys)
    partitions = np.full(len(keys), -1, np.int32)
    if len(parts.ends):
        row = partition_keys(*parts, partition_count, partitions)
        if row >= 0:
            raise ValueError(f"row {row}: the array's offsets point outside of its data")
    return partitions


def rows_by_partition(partitions: "Ints", partition_count: int) -> "list[tuple[int, Longs]]":
    """Each partition with rows, and their numbers in order. Raises ValueError for a row with an unknown partition."""
    ends = np.zeros(partition_count + 1, np.int64)
    rows = np.empty(len(partitions), np.int64)
    row = sort_rows(numbers(partitions, np.int32), ends, rows)
    if row >= 0:
        raise ValueError(f"row {row}: there is no partition {partitions[row]}")
    found = []
    first = 0
    for partition, end in enumerate(ends[:-1].tolist()):
        if end > first:
            found.append((partition, rows[first:end]))
        first = end
    return found
