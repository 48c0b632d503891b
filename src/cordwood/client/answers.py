"""What a cluster answers, as values."""

from enum import IntEnum
from typing import Final, NamedTuple

from cordwood.model.identifiers import TopicId

EARLIEST: Final = -2
LATEST: Final = -1
"""In place of a time: the first and the next offset of a partition."""


class Isolation(IntEnum):
    READ_UNCOMMITTED = 0
    READ_COMMITTED = 1


class PartitionMetadata(NamedTuple):
    index: int  # type: ignore[assignment]
    leader_id: int
    """-1: nobody leads it now."""
    leader_epoch: int


class TopicMetadata(NamedTuple):
    name: str
    topic_id: TopicId | None
    """None from brokers that are too old for topic ids."""
    partitions: tuple[PartitionMetadata, ...]
    """Ordered by index; from 0 on without gaps, unless the broker says otherwise."""
    is_internal: bool = False


class FoundOffset(NamedTuple):
    offset: int
    """-1: no record is that late."""
    timestamp_ms: int
    leader_epoch: int


class Committed(NamedTuple):
    """A group's position in a partition."""

    offset: int
    metadata: str
    """What its committer wrote along with it; empty if nothing."""


class Fetched(NamedTuple):
    """One answer to a fetch: whole batches as the log has them, and where the log stood."""

    records: memoryview
    """A batch that was broken off at the end is cut away. The memory is the view's own: keep it as long as needed."""
    base: int
    """The base offset of the first batch, which may lie before the offset asked for; without batches, that offset."""
    next_offset: int
    """Where to go on: after the last batch; without batches, the offset asked for."""
    high_watermark: int
    last_stable_offset: int
    log_start_offset: int
    aborted: tuple[tuple[int, int], ...]
    """Producer id and first offset of each aborted transaction that reaches into these records (read_committed)."""


class Produced(NamedTuple):
    base_offset: int
    """Of the first batch. -1 where the broker did not say: with acks=0, or for a duplicate of long ago."""
    next_offset: int
    """After the last batch; -1 as above. Other producers' batches, and markers, may lie between."""


class ProducerIdentity(NamedTuple):
    producer_id: int
    producer_epoch: int
