"""Finds, explains and judges records that a query should have read and never can.

`find_losses` is pure: positions and a view of the cluster come in, losses come out. Offsets that compaction or a
transaction left without a record are no loss, and neither is a position ahead of the last stable offset. `judge` adds
the reason that the topic's settings give, and stops the query, or logs the losses and lets it go on.
"""

import datetime
import logging
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Final

from cordwood.client.answers import Isolation
from cordwood.client.cluster import Cluster
from cordwood.client.errors import ClientError
from cordwood.model.identifiers import TopicId, TopicPartition
from cordwood.spark.options.names import FAIL_ON_DATA_LOSS


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


_TOLD: Final = 10
"""The number of losses that are told in full."""

_UNITS = ((86_400_000, "d"), (3_600_000, "h"), (60_000, "min"), (1000, "s"))

_ADVICE = {
    Cause.REMOVED: "Keep records longer (retention.ms, retention.bytes) or read sooner; `cordwood group watch` shows"
    " the time that is left before data is lost.",
    Cause.STARTS_LATE: "Keep records longer (retention.ms, retention.bytes) or read sooner.",
    Cause.RECREATED: "Positions of the old topic mean nothing in the new one: begin with a new checkpoint.",
    Cause.ENDS_EARLIER: "If the topic was created again, begin with a new checkpoint.",
    Cause.TOPIC_GONE: "If that was meant, begin with a new checkpoint, or remove the topic from the query.",
    Cause.NOT_SUBSCRIBED: "Subscribe to it again, or begin with a new checkpoint.",
}


def explain(cluster: Cluster, losses: Sequence[Loss]) -> str:
    """The losses, with the reasons that the cluster tells. Never fails: a loss is reported in any case."""
    now_ms = int(time.time() * 1000)
    lines = []
    settings: dict[str, Mapping[str, str]] = {}
    for loss in losses[:_TOLD]:
        topic = loss.partition.topic
        line = f"{loss}."
        if loss.cause in (Cause.REMOVED, Cause.STARTS_LATE):
            try:
                if topic not in settings:
                    settings[topic] = cluster.describe_configs(topic)
                line += _first_left(cluster, loss, now_ms) + _retention(settings[topic])
            except ClientError as failure:
                line += f" The reason could not be asked for: {failure}."
        lines.append(line)
    if len(losses) > _TOLD:
        rest = losses[_TOLD:]
        lines.append(f"And {len(rest)} more partitions with {sum(loss.count for loss in rest)} lost offsets.")
    return "\n".join(lines)


def advise(losses: Sequence[Loss]) -> str:
    advice = dict.fromkeys(_ADVICE[loss.cause] for loss in losses)
    return "\n".join([*advice, f"To go on without these records, set {FAIL_ON_DATA_LOSS}=false."])


def _first_left(cluster: Cluster, loss: Loss, now_ms: int) -> str:
    # The first record that is not from before 1970 is the first one.
    found = cluster.list_offsets({loss.partition: 0}, Isolation.READ_UNCOMMITTED).get(loss.partition)
    if found is None or found.offset < 0:
        return " No record is left in it."
    when = _moment(found.timestamp_ms)
    age = f", {duration(now_ms - found.timestamp_ms)} ago" if now_ms > found.timestamp_ms else ""
    return f" The first record that is left has offset {found.offset} and is of {when}{age}."


def _moment(timestamp_ms: int) -> str:
    try:
        moment = datetime.datetime.fromtimestamp(timestamp_ms / 1000, datetime.UTC)
    except (OverflowError, ValueError):  # a producer that counts microseconds writes times of the year 50000
        return f"{timestamp_ms} ms"
    return moment.isoformat(timespec="milliseconds")


def _retention(settings: Mapping[str, str]) -> str:
    policy = settings.get("cleanup.policy", "delete")
    time_ms = _limit(settings.get("retention.ms"))
    size_bytes = _limit(settings.get("retention.bytes"))
    if "delete" not in policy:
        return (
            f" The topic has cleanup.policy={policy}, so retention takes nothing: records were deleted (DeleteRecords)."
        )
    if time_ms is None and size_bytes is None:
        return (
            " The topic has no limit in time or size, so retention takes nothing: records were deleted (DeleteRecords)."
        )
    limits = []
    if time_ms is not None:
        limits.append(f"for {duration(time_ms)} (retention.ms={time_ms})")
    if size_bytes is not None:
        limits.append(f"up to {size_bytes} bytes in a partition (retention.bytes={size_bytes})")
    return f" The topic keeps records {' and '.join(limits)}."


def _limit(text: str | None) -> int | None:
    if text is None or not text.lstrip("-").isdecimal() or int(text) < 0:
        return None
    return int(text)


def duration(milliseconds: int) -> str:
    for unit_ms, unit in _UNITS:
        if milliseconds >= unit_ms:
            return f"{milliseconds / unit_ms:.3g} {unit}"
    return f"{milliseconds} ms"


_log = logging.getLogger(__name__)


def judge(cluster: Cluster, losses: Sequence[Loss], ledger: Ledger, *, fail: bool) -> None:
    """Raises DataLoss if the query is to fail; else counts each loss in the ledger and logs it, once."""
    if fail and losses:
        raise DataLoss(f"The query cannot read all that it should.\n{explain(cluster, losses)}\n{advise(losses)}")
    news = [loss for loss in losses if loss.end is None or ledger.add(loss.partition, loss.start, loss.end)]
    if news:
        text = "data loss (failOnDataLoss=false), %d offsets in this run of the query so far:\n%s"
        _log.warning(text, ledger.total, explain(cluster, news))
