"""Estimates the bytes of an offset, from a small sample of the next records.

Brokers tell offsets, not sizes. Before a batch that may exceed its limit in bytes, a few kilobytes are fetched at the
position of the partitions with the most unread offsets. The estimate is the stored bytes of the sampled batches
(compressed, if they are) by the offsets that they span. Other partitions count like the sampled ones of their topic, or
else like all of them.
"""

from collections.abc import Mapping
from typing import Final

from cordwood.client.answers import Isolation
from cordwood.client.cluster import Cluster
from cordwood.client.errors import OffsetOutOfRange, UnknownTopic
from cordwood.model.identifiers import TopicPartition

_SAMPLED_PARTITIONS: Final = 8
_SAMPLE_BYTES: Final = 64 << 10
_UNKNOWN_BYTES: Final = 1024.0


class Scales:
    """Remembers the last estimate of each partition."""

    def __init__(self, isolation: Isolation) -> None:
        self._isolation = isolation
        self._weights: dict[TopicPartition, float] = {}

    def weigh(
        self,
        cluster: Cluster,
        start: Mapping[TopicPartition, int],
        sizes: Mapping[TopicPartition, int],
        max_bytes: int,
    ) -> dict[TopicPartition, float]:
        """The bytes of one offset of each partition in `sizes`. Takes samples unless everything clearly fits."""
        largest = sorted(sizes, key=lambda partition: (-sizes[partition], partition))[:_SAMPLED_PARTITIONS]
        estimate = sum(size * self._weight(partition) for partition, size in sizes.items())
        if estimate > max_bytes // 2 or not self._weights.keys() >= set(largest):
            for partition in largest:
                weight = self._sample(cluster, partition, start[partition])
                if weight is not None:
                    self._weights[partition] = weight
        return {partition: self._weight(partition) for partition in sizes}

    def _sample(self, cluster: Cluster, partition: TopicPartition, offset: int) -> float | None:
        try:
            fetched = cluster.fetch(
                partition, offset, max_bytes=_SAMPLE_BYTES, max_wait_ms=0, isolation=self._isolation
            )
        except (OffsetOutOfRange, UnknownTopic):
            return None  # the reader finds and reports the fault
        spanned = fetched.next_offset - fetched.base
        return len(fetched.records) / spanned if spanned > 0 and fetched.records else None

    def _weight(self, partition: TopicPartition) -> float:
        if partition in self._weights:
            return self._weights[partition]
        alike = [weight for other, weight in self._weights.items() if other.topic == partition.topic]
        known = alike or list(self._weights.values()) or [_UNKNOWN_BYTES]
        return sum(known) / len(known)
