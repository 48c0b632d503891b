"""Limits the end of a micro-batch by the log and the options.

A limit is spread over the partitions in proportion to their unread offsets, so that none falls behind the others; a
partition with any gets at least one offset. Offsets are counted, not records: compaction and transactions leave offsets
without a record.

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
from cordwood.spark.source.offsets import Positions


def available(start: Mapping[TopicPartition, int], latest: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
    """The number of unread offsets by partition; partitions without any are left out."""
    sizes = {partition: end - start[partition] for partition, end in latest.items() if partition in start}
    return {partition: size for partition, size in sizes.items() if size > 0}


def at_most_offsets(
    start: Mapping[TopicPartition, int], latest: Mapping[TopicPartition, int], max_offsets: int
) -> Positions:
    """The end of a batch of at most `max_offsets` offsets, or of one from each partition if those are more."""
    sizes = available(start, latest)
    total = sum(sizes.values())
    if total <= max_offsets:
        return dict(latest)
    # Each partition gets one first; then the rest in proportion; rounding's remainder goes to those that it cost most.
    taken = dict.fromkeys(sizes, 1)
    rest = max_offsets - len(sizes)
    if rest > 0:
        waiting = total - len(sizes)
        shares = {partition: divmod(rest * (size - 1), waiting) for partition, size in sizes.items()}
        for partition, (share, _) in shares.items():
            taken[partition] += share
        left = max_offsets - sum(taken.values())
        by_remainder = sorted(shares, key=lambda partition: (-shares[partition][1], partition))
        for partition in by_remainder[:left]:
            taken[partition] += 1
    return {**latest, **{partition: start[partition] + count for partition, count in taken.items()}}


def at_most_bytes(
    start: Mapping[TopicPartition, int],
    latest: Mapping[TopicPartition, int],
    max_bytes: int,
    bytes_per_offset: Mapping[TopicPartition, float],
) -> Positions:
    """The end of a batch of about `max_bytes`, by an estimate of the bytes of an offset in each partition."""
    sizes = available(start, latest)
    total_bytes = sum(size * bytes_per_offset[partition] for partition, size in sizes.items())
    if total_bytes <= max_bytes:
        return dict(latest)
    fraction = max_bytes / total_bytes
    taken = {partition: max(1, int(size * fraction)) for partition, size in sizes.items()}
    return {**latest, **{partition: start[partition] + count for partition, count in taken.items()}}


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
