"""Finds records that a query should have read and never can, with the time and the cause of their loss.

The functions are pure: positions and a view of the cluster come in, losses come out. Offsets that compaction or a
transaction left without a record are no loss, and neither is a position ahead of the last stable offset.
`explaining.py` adds the reason that the topic's settings give.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from enum import Enum

from cordwood.model.identifiers import TopicId, TopicPartition


class Cause(Enum):
    REMOVED = "records were removed from the beginning of the log"
    STARTS_LATE = "the partition is new to this query, and its log no longer begins at 0"
    RECREATED = "the topic was deleted and created again"
    ENDS_EARLIER = "the log ends before the position of this query: it was truncated, or the topic is another one"
    TOPIC_GONE = "the topic or partition does not exist any more"
    NOT_SUBSCRIBED = "the query has a position in this partition, and does not read it any more"


@dataclass(frozen=True)
class Loss:
    """Offsets of a partition from start to before end. The end is None if it is unknown."""

    partition: TopicPartition
    start: int
    end: int | None
    cause: Cause
    log_start_offset: int | None = None
    log_end_offset: int | None = None

    @property
    def count(self) -> int:
        """The number of offsets that are known to be lost."""
        return 0 if self.end is None else max(0, self.end - self.start)

    def __str__(self) -> str:
        if self.end is not None and self.end > self.start:
            what = f"offsets {self.start} to {self.end - 1} ({self.end - self.start} offsets)"
        else:
            what = f"whatever there was from offset {self.start} on"
        text = f"{self.partition}: {what}: {self.cause.value}"
        if self.cause in (Cause.REMOVED, Cause.STARTS_LATE):
            text += f", which begins at {self.log_start_offset} now"
        elif self.cause is Cause.ENDS_EARLIER:
            text += f" (it ends at {self.log_end_offset})"
        return text


class DataLoss(Exception):
    """The query cannot read all that it should. With failOnDataLoss=false this is not raised."""


@dataclass(frozen=True)
class Partition:
    """The cluster's view of a partition."""

    topic_id: TopicId | None
    earliest: int
    latest: int
    """The end of the partition: no reader's position, whatever the isolation, may lie beyond."""


def find_losses(
    start: Mapping[TopicPartition, int],
    found: Mapping[TopicPartition, Partition],
    *,
    known_ids: Mapping[str, TopicId],
    last_seen: Mapping[TopicPartition, int],
    existing: Collection[TopicPartition] = (),
) -> list[Loss]:
    """The losses of a query at the positions `start`. `found` has the partitions that it may read now, `known_ids` the
    known ids of the topics that its positions belong to, `last_seen` the ends of logs at an earlier time. `existing`
    has all partitions, read or not, of topics with a partition that is not found."""
    losses = []
    # A topic never loses partitions: one with fewer was created again.
    topics = {partition.topic for partition in existing}
    shrunk = {name.topic for name in start if name.topic in topics and name not in found and name not in existing}
    for partition, position in sorted(start.items()):
        now = found.get(partition)
        seen = last_seen.get(partition)
        seen_end = seen if seen is not None and seen > position else None
        known_id = known_ids.get(partition.topic)
        if partition.topic in shrunk:
            losses.append(Loss(partition, position, seen_end, Cause.RECREATED))
        elif now is None:
            gone = Cause.NOT_SUBSCRIBED if partition in existing else Cause.TOPIC_GONE
            losses.append(Loss(partition, position, seen_end, gone))
        elif known_id is not None and now.topic_id is not None and now.topic_id != known_id:
            losses.append(Loss(partition, position, seen_end, Cause.RECREATED, now.earliest, now.latest))
        elif position > now.latest:
            losses.append(Loss(partition, position, seen_end, Cause.ENDS_EARLIER, now.earliest, now.latest))
        elif position < now.earliest:
            losses.append(Loss(partition, position, now.earliest, Cause.REMOVED, now.earliest, now.latest))
    for partition, now in sorted(found.items()):
        if partition not in start and now.earliest > 0:
            losses.append(Loss(partition, 0, now.earliest, Cause.STARTS_LATE, now.earliest, now.latest))
    return losses


BEGIN_ANEW = frozenset({Cause.RECREATED, Cause.ENDS_EARLIER, Cause.TOPIC_GONE, Cause.NOT_SUBSCRIBED})
"""Causes after which the position means nothing. It is dropped for one batch; if the partition still exists at the
next, it is new and read from its beginning."""


class Ledger:
    """Every offset that was lost, counted once however often it is reported."""

    def __init__(self) -> None:
        self._lost: dict[TopicPartition, list[tuple[int, int]]] = {}
        self._settled: dict[TopicPartition, int] = {}

    def add(self, partition: TopicPartition, start: int, end: int) -> int:
        """Adds a loss. Returns how many of its offsets were not known before."""
        if end <= start:
            return 0
        before = self.count(partition)
        merged: list[tuple[int, int]] = []
        for piece_start, piece_end in sorted([*self._lost.get(partition, []), (start, end)]):
            if merged and piece_start <= merged[-1][1]:
                merged[-1] = (merged[-1][0], max(merged[-1][1], piece_end))
            else:
                merged.append((piece_start, piece_end))
        self._lost[partition] = merged
        return self.count(partition) - before

    def settle(self, partition: TopicPartition) -> None:
        """Keeps only the number of the partition's lost offsets, because its offsets begin again."""
        self._settled[partition] = self.count(partition)
        self._lost.pop(partition, None)

    def count(self, partition: TopicPartition, below: int | None = None) -> int:
        """The number of lost offsets; with `below`, only of those before this position."""
        pieces = self._lost.get(partition, [])
        if below is not None:
            pieces = [(start, min(end, below)) for start, end in pieces if start < below]
        return self._settled.get(partition, 0) + sum(end - start for start, end in pieces)

    @property
    def total(self) -> int:
        return sum(self.count(partition) for partition in self._lost.keys() | self._settled.keys())
