"""Answers of a cluster, as values."""

from enum import IntEnum
from typing import Final, NamedTuple

from cordwood.model.identifiers import TopicId

EARLIEST: Final = -2
LATEST: Final = -1
"""Stand in place of a time: the first and the next offset of a partition."""
MAX_TIMESTAMP: Final = -3
"""Stands in place of a time: the offset and the time of the newest record."""
NO_POSITION: Final = -1
"""Takes the place of a position: tools read it as a group that never committed, and show no lag."""


class Isolation(IntEnum):
    READ_UNCOMMITTED = 0
    READ_COMMITTED = 1


class PartitionMetadata(NamedTuple):
    index: int  # type: ignore[assignment]
    leader_id: int
    """The leader's broker id; -1: the partition has no leader now."""
    leader_epoch: int


class TopicMetadata(NamedTuple):
    name: str
    topic_id: TopicId | None
    """None from brokers that are too old for topic ids."""
    partitions: tuple[PartitionMetadata, ...]
    """Partitions by index, usually from 0 on without gaps."""
    is_internal: bool = False


class FoundOffset(NamedTuple):
    offset: int
    """The offset; -1 if no record is that late."""
    timestamp_ms: int
    leader_epoch: int


class Committed(NamedTuple):
    """A group's position in a partition."""

    offset: int
    """The position; NO_POSITION: the group has a text here and no position."""
    metadata: str
    """The text that was committed with the position; may be empty."""


class Fetched(NamedTuple):
    """One answer to a fetch: whole batches as the log has them, and the ends of the log."""

    records: memoryview
    """The batches, without an incomplete batch at the end. The memory belongs to the view."""
    base: int
    """The base offset of the first batch, which may lie before the requested offset; without batches, that offset."""
    next_offset: int
    """The offset after the last batch; without batches, the requested offset."""
    high_watermark: int
    last_stable_offset: int
    log_start_offset: int
    aborted: tuple[tuple[int, int], ...]
    """Producer id and first offset of each aborted transaction that reaches into these records (read_committed)."""


class Produced(NamedTuple):
    base_offset: int
    """The offset of the first batch; -1 if the broker gave none: with acks=0, or for an old duplicate."""
    next_offset: int
    """The offset after the last batch, or -1. Other producers' batches, and markers, may lie between."""


class ProducerIdentity(NamedTuple):
    producer_id: int
    producer_epoch: int
