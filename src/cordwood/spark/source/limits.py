"""How far a micro-batch goes, given what there is and what the options allow. Pure.

A limit is spread over the partitions in proportion to what each has, so that none falls behind the others; a
partition that has anything gets at least one offset. Offsets are counted, not records: compaction and transactions
leave offsets without a record.
"""

from collections.abc import Mapping

from cordwood.model.identifiers import TopicPartition
from cordwood.spark.source.offsets import Positions


def available(start: Mapping[TopicPartition, int], latest: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
    """How many offsets each partition has to offer; partitions without any are left out."""
    sizes = {partition: end - start[partition] for partition, end in latest.items() if partition in start}
    return {partition: size for partition, size in sizes.items() if size > 0}


def at_most_offsets(
    start: Mapping[TopicPartition, int], latest: Mapping[TopicPartition, int], max_offsets: int
) -> Positions:
    """The end of a batch of at most so many offsets (or of one from each partition, if those are more)."""
    sizes = available(start, latest)
    total = sum(sizes.values())
    if total <= max_offsets:
        return dict(latest)
    # One for everybody first; then the rest in proportion, and what rounding left to those it left most to.
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
    """The end of a batch of about so many bytes, by an estimate of what an offset takes in each partition."""
    sizes = available(start, latest)
    total_bytes = sum(size * bytes_per_offset[partition] for partition, size in sizes.items())
    if total_bytes <= max_bytes:
        return dict(latest)
    fraction = max_bytes / total_bytes
    taken = {partition: max(1, int(size * fraction)) for partition, size in sizes.items()}
    return {**latest, **{partition: start[partition] + count for partition, count in taken.items()}}
