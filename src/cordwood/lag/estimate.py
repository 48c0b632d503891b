"""Estimates a log's segments for a client, which does not see them.

A client knows the log's start, end and size, the time of two records, and the topic's settings. Even records fill
segments evenly: each segment ends by segment.bytes or segment.ms, counted from the log's start, which is the start of a
segment after every retention.
"""

from itertools import pairwise

from cordwood.lag.data_loss import LogSpan, RetentionRules, SegmentSpan
from cordwood.model.identifiers import NO_TIMESTAMP_MS

MAX_SEGMENTS = 1000
"""The most estimated segments; beyond that several are merged: a thousandth of the log's time is exact enough."""


def estimated_span(
    start: int,
    end: int,
    size_bytes: int | None,
    first_unread: int,
    first_unread_ms: int,
    newest_ms: int,
    rules: RetentionRules,
) -> LogSpan:
    """The estimated span. `first_unread_ms` is the time of the record at `first_unread`; NO_TIMESTAMP_MS if unknown."""
    records = end - start
    if records <= 0:
        return LogSpan(start, end, (), rules)
    record_bytes = (size_bytes or 0) / records
    newest_ms = max(newest_ms, first_unread_ms)
    step_ms = (newest_ms - first_unread_ms) / max(end - 1 - first_unread, 1)

    def time_of(offset: int) -> int:
        if first_unread_ms < 0:
            return NO_TIMESTAMP_MS
        return max(round(first_unread_ms + (offset - first_unread) * step_ms), 0)

    # A segment takes its last record while it is not full, and is rolled when its first record is too old.
    by_size = int(rules.segment_bytes / record_bytes) if record_bytes else records
    by_age = -(-rules.segment_ms // max(round(step_ms), 1)) if step_ms >= 1 else records
    length = max(min(by_size, by_age), records // MAX_SEGMENTS, 1)
    cuts = [*range(start, end, length), end]
    segments = tuple(
        SegmentSpan(base, following, max(round((following - base) * record_bytes), 1), time_of(following - 1))
        for base, following in pairwise(cuts)
    )
    begun_ms = time_of(segments[-1].base_offset)
    return LogSpan(start, end, segments, rules, None if begun_ms < 0 else begun_ms + rules.segment_ms)
