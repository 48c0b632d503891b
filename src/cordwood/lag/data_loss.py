"""Forecasts when retention removes a record that a reader has not read yet.

Retention removes whole segments, oldest first, and stops at the first that it has no reason to remove. So a segment is
removed when it and all before it have a reason to go. The reasons are those of `log/upkeep/retention.py`: the segment's
newest record is older than retention.ms, or the segments behind it are as large as retention.bytes.

The forecast lets the log grow, and the reader advance, at constant rates; records that are yet to come carry the time
of their arrival. The forecast says when removal becomes due. The removal happens at the next check, at most
log.retention.check.interval.ms later, and not before a checkpoint has made the segment durable.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

from cordwood.model.settings.topic_settings import TopicSettings

NO_LIMIT = -1
NEVER = math.inf

HORIZON_MS = 10 * 365 * 86_400_000
"""A loss more than ten years away counts as none."""


class SegmentSpan(NamedTuple):
    """One segment: its offsets, its size and the timestamp of its newest record."""

    base_offset: int
    end_offset: int
    size_bytes: int
    newest_ms: int
    """NO_TIMESTAMP_MS if the records have no timestamps: then only the size counts."""


class RetentionRules(NamedTuple):
    """The settings of a topic that decide when segments are removed."""

    deletes: bool
    """False: compacted only. Compaction keeps the newest record of each key; retention takes nothing."""
    retention_ms: int = NO_LIMIT
    retention_bytes: int = NO_LIMIT
    segment_bytes: int = 1_073_741_824
    segment_ms: int = 604_800_000

    @classmethod
    def of(cls, settings: TopicSettings) -> "RetentionRules":
        return cls(
            settings.deletes,
            settings.retention_ms,
            settings.retention_bytes,
            settings.segment_bytes,
            settings.segment_ms,
        )


RULING_SETTINGS = ("cleanup.policy", "retention.ms", "retention.bytes", "segment.bytes", "segment.ms")
"""The names of the settings that `RetentionRules.of` reads."""


class LogSpan(NamedTuple):
    """One partition's log as it is now."""

    start_offset: int
    end_offset: int
    """The end of the readable log."""
    segments: tuple[SegmentSpan, ...]
    """The segments, oldest first, without gaps."""
    rules: RetentionRules
    roll_at_ms: int | None = None
    """When the last segment is closed for its age; None if it is closed already."""


class Growth(NamedTuple):
    """How fast a log grows."""

    records_per_ms: float = 0.0
    bytes_per_ms: float = 0.0

    @property
    def is_nothing(self) -> bool:
        return self.records_per_ms <= 0 or self.bytes_per_ms <= 0


def time_to_data_loss_ms(
    log: LogSpan, position: int, *, growth: Growth, drained_per_ms: float, wall_ms: int
) -> float | None:
    """In how many milliseconds removal of a record at or after the position becomes due before the reader gets there.

    None: never, at these rates. 0: it is due. A position before the log's start counts as the start.
    """
    if not log.rules.deletes:
        return None
    position = max(position, log.start_offset)
    closed, active = _split(log, growth, wall_ms)
    held_until = 0.0
    behind = sum(segment.size_bytes for segment in log.segments)
    for segment in closed:
        behind -= segment.size_bytes
        if segment.end_offset == segment.base_offset:
            continue
        held_until = max(held_until, _due_in_ms(segment, behind, log.rules, growth, wall_ms))
        if held_until > HORIZON_MS:
            return None
        if position + drained_per_ms * held_until < segment.end_offset:
            return held_until
    if active is not None and not held_until and not _due_in_ms(active, 0, log.rules, Growth(), wall_ms):
        # The segment is old in spite of the traffic: its timestamps are old, or no record came for long. A new segment
        # begins.
        if position < active.end_offset:
            return 0.0
        active = None
    if growth.is_nothing:
        return None
    return _loss_of_future_ms(log, active, position, growth, drained_per_ms, held_until, wall_ms)


def _split(log: LogSpan, growth: Growth, wall_ms: int) -> tuple[Sequence[SegmentSpan], SegmentSpan | None]:
    """Segments whose content is final, and the segment that still grows, if there is one."""
    if not log.segments or log.roll_at_ms is None or growth.is_nothing or log.roll_at_ms <= wall_ms:
        return log.segments, None
    if log.segments[-1].size_bytes >= log.rules.segment_bytes:
        return log.segments, None
    return log.segments[:-1], log.segments[-1]


def _due_in_ms(segment: SegmentSpan, behind_bytes: int, rules: RetentionRules, growth: Growth, wall_ms: int) -> float:
    """The time until there is a reason to remove a segment whose content is final."""
    due = NEVER
    if not segment.size_bytes:
        return 0.0  # compaction has emptied the segment
    if rules.retention_ms >= 0 and segment.newest_ms >= 0:
        due = segment.newest_ms + rules.retention_ms + 1 - wall_ms
    if rules.retention_bytes >= 0:
        missing_bytes = rules.retention_bytes - behind_bytes
        if missing_bytes <= 0:
            return 0.0
        if growth.bytes_per_ms > 0:
            due = min(due, missing_bytes / growth.bytes_per_ms)
    return max(due, 0.0)


def _loss_of_future_ms(
    log: LogSpan,
    active: SegmentSpan | None,
    position: int,
    growth: Growth,
    drained_per_ms: float,
    held_until: float,
    wall_ms: int,
) -> float | None:
    """The time to loss in the growing segment and its successors, each closed a fixed time after the last.

    Segment k is closed at `first + k * lasting` with all records until then. Its removal is due `kept` later, but not
    before the segments that exist already are removed.
    """
    rules = log.rules
    kept = NEVER if rules.retention_ms < 0 else float(rules.retention_ms + 1)
    if rules.retention_bytes >= 0:
        kept = min(kept, rules.retention_bytes / growth.bytes_per_ms)
    if kept == NEVER:
        return None
    lasting = max(min(rules.segment_bytes / growth.bytes_per_ms, float(rules.segment_ms)), 1.0)
    if active is None:
        first = lasting
    else:
        assert log.roll_at_ms is not None
        room_bytes = rules.segment_bytes - active.size_bytes
        first = min(room_bytes / growth.bytes_per_ms, float(log.roll_at_ms - wall_ms))
    lag = log.end_offset - position
    growing = growth.records_per_ms - drained_per_ms
    k = 0
    if first + kept <= held_until:
        # Future segments that are due before the present ones are removed go together with them.
        k = math.floor((held_until - kept - first) / lasting)
        if lag + growth.records_per_ms * (first + k * lasting) > drained_per_ms * held_until:
            return held_until
        k += 1
    closed = first + k * lasting
    if lag + growing * closed <= drained_per_ms * kept:
        if growing <= 0:
            return None
        reached = (drained_per_ms * kept - lag) / growing
        if reached > HORIZON_MS:
            return None
        closed = first + (math.floor((reached - first) / lasting) + 1) * lasting
    loss = closed + kept
    return None if loss > HORIZON_MS else loss
