"""Limits the end of a micro-batch by the log and the options. Pure.

A limit is spread over the partitions in proportion to their unread offsets, so that none falls behind the others; a
partition with any gets at least one offset. Offsets are counted, not records: compaction and transactions leave offsets
without a record.
"""

from collections.abc import Mapping

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
