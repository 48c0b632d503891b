"""Chooses the topic and partition of every row of a block.

The rules are those of the Java client: an explicit partition wins, else the key decides (murmur2), else rows without a
key stay with one partition for a while and then move on. The work is vectorised: the cost in Python is per block and
topic, not per row.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from cordwood.columnar.partitioning import murmur2_partitions, rows_by_partition
from cordwood.model.identifiers import TopicPartition
from cordwood.spark.sink.blocks import Block, UnwritableRow

STICKY_BYTES = 16 << 10
"""Rows without a key move on to the next partition after this many bytes: the Java client's batch.size. Rows of one
block that go to one partition are one record batch all the same."""

_ROW_OVERHEAD = 8
_NOWHERE = -1

Rows = npt.NDArray[np.int64]
Partitions = npt.NDArray[np.int32]


class Router:
    """Routes the blocks of one task. Deterministic: a repeated task with the same rows writes to the same
    partitions."""

    def __init__(self, topic: str | None, partition_count: Callable[[str], int], start: int) -> None:
        """`start` is the first partition of rows without a key, so that small tasks do not all begin with partition
        0."""
        self._topic = topic
        self._partition_count = partition_count
        self._start = start
        self._keyless_bytes: dict[str, int] = {}

    def route(self, block: Block) -> list[tuple[TopicPartition, Rows]]:
        """The rows of each partition, in their order. Raises UnwritableRow."""
        if self._topic is not None:
            return self._route_topic(self._topic, block, None)
        if block.topic.null_count:
            raise UnwritableRow("null topic present in the data. Use the topic option for setting a default topic.")
        encoded = pc.dictionary_encode(block.topic)
        names = encoded.dictionary.to_pylist()
        if len(names) == 1:
            return self._route_topic(names[0], block, None)
        groups = rows_by_partition(encoded.indices.to_numpy(zero_copy_only=False), len(names))
        return [part for index, rows in groups for part in self._route_topic(names[index], block, rows)]

    def _route_topic(self, topic: str, block: Block, rows: Rows | None) -> list[tuple[TopicPartition, Rows]]:
        count = self._partition_count(topic)
        key, value, explicit = block.key, block.value, block.partition
        if rows is not None:
            indices = pa.array(rows)
            key, value = None if key is None else key.take(indices), value.take(indices)
            explicit = None if explicit is None else explicit.take(indices)
        partitions = self._partitions(topic, count, key, value, explicit)
        grouped = rows_by_partition(partitions, count)
        return [(TopicPartition(topic, index), chosen if rows is None else rows[chosen]) for index, chosen in grouped]

    def _partitions(self, topic: str, count: int, key: Any, value: Any, explicit: Any) -> Partitions:
        if explicit is not None and explicit.null_count < len(explicit):
            _check_explicit(topic, count, explicit)
            given: Partitions = explicit.fill_null(_NOWHERE).to_numpy(zero_copy_only=False).astype(np.int32)
            if not explicit.null_count:
                return given
        else:
            given = np.full(len(value), _NOWHERE, np.int32)
        if key is not None and key.null_count < len(key):
            by_key = murmur2_partitions(key, count)
            given = np.where(given == _NOWHERE, by_key, given)
        homeless = np.flatnonzero(given == _NOWHERE)
        if len(homeless):
            given[homeless] = self._spread(topic, count, value, homeless)
        return given

    def _spread(self, topic: str, count: int, value: Any, rows: npt.NDArray[np.intp]) -> Partitions:
        lengths = pc.fill_null(pc.binary_length(value), 0).to_numpy(zero_copy_only=False)
        sizes = lengths[rows].astype(np.int64) + _ROW_OVERHEAD
        before = self._keyless_bytes.get(topic, 0)
        ends = np.cumsum(sizes) + before
        self._keyless_bytes[topic] = int(ends[-1])
        spread: Partitions = ((self._start + (ends - sizes) // STICKY_BYTES) % count).astype(np.int32)
        return spread


def _check_explicit(topic: str, count: int, explicit: Any) -> None:
    bounds = pc.min_max(explicit).as_py()
    wrong = bounds["min"] if bounds["min"] < 0 else bounds["max"]
    if not 0 <= wrong < count:
        raise UnwritableRow(
            f"Column 'partition' has {wrong}, but topic '{topic}' has the partitions 0 to {count - 1}. Use one of "
            "them, or null to have the key decide, or drop the column"
        )
