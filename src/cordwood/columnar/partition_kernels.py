"""Finds the partition of a key, and sorts rows by partition, in numba."""

from typing import TYPE_CHECKING

from cordwood.columnar.compiled import BYTES_IN, INTS_IN, LONGS_IN, int64, kernel, part, types
from cordwood.columnar.memory import at, memory

if TYPE_CHECKING:
    from cordwood.columnar.compiled import Bytes, Ints, Longs
    from cordwood.columnar.memory import Memory

_SEED, _FACTOR, _ALL = 0x9747B28C, 0x5BD1E995, 0xFFFFFFFF


@part
def _murmur2(data: "Memory", start: int, end: int) -> int:
    """Apache Kafka's murmur2. 32 bits in 64: a product of two such numbers with _FACTOR does not overflow."""
    mixed = int64((_SEED ^ (end - start)) & _ALL)
    position = start
    while position + 4 <= end:
        word = (
            at(data, position)
            | at(data, position + 1) << 8
            | at(data, position + 2) << 16
            | at(data, position + 3) << 24
        )
        word = (word * _FACTOR) & _ALL
        word = ((word ^ (word >> 24)) * _FACTOR) & _ALL
        mixed = ((mixed * _FACTOR) & _ALL) ^ word
        position += 4
    if position < end:
        for place in range(end - position):
            mixed ^= at(data, position + place) << (8 * place)
        mixed = (mixed * _FACTOR) & _ALL
    mixed = ((mixed ^ (mixed >> 13)) * _FACTOR) & _ALL
    return mixed ^ (mixed >> 15)


@kernel(types.int64(LONGS_IN, BYTES_IN, types.int64, BYTES_IN, types.int64, types.int32[::1]))
def partition_keys(
    ends: "Longs", valid: "Bytes", valid_at: int, keys: "Bytes", partition_count: int, partitions: "Ints"
) -> int:
    """The partition of each key, -1 where it is null; returns the row of a key outside of the data, or -1."""
    for row in range(len(partitions)):
        bit = valid_at + row
        if len(valid) > 0 and (valid[bit >> 3] >> (bit & 7)) & 1 == 0:
            partitions[row] = -1
            continue
        if ends[row] < 0 or ends[row + 1] < ends[row] or ends[row + 1] > len(keys):
            return int64(row)
        partitions[row] = (_murmur2(memory(keys), ends[row], ends[row + 1]) & 0x7FFFFFFF) % partition_count
    return int64(-1)


@kernel(types.int64(INTS_IN, types.int64[::1], types.int64[::1]))
def sort_rows(partitions: "Ints", ends: "Longs", rows: "Longs") -> int:
    """Sorts the rows by partition, stable within a partition; returns a row without a valid partition, or -1.

    `ends` has one place more than there are partitions, all zero: partition p's rows then end at ends[p].
    """
    for row in range(len(partitions)):
        if partitions[row] < 0 or partitions[row] >= len(ends) - 1:
            return int64(row)
        ends[partitions[row] + 1] += 1
    for partition in range(1, len(ends)):
        ends[partition] += ends[partition - 1]
    for row in range(len(partitions)):
        rows[ends[partitions[row]]] = row
        ends[partitions[row]] += 1
    return int64(-1)
