"""A log's segments as a client can work them out, against those that a broker would make of the same records."""

import random

import pytest

from cordwood.lag.data_loss import Growth, LogSpan, RetentionRules, SegmentSpan, time_to_data_loss_ms
from cordwood.lag.estimate import estimated_span

NOW_MS = 1_000_000_000
RECORD_BYTES = 100


def true_span(start: int, records: int, first_ms: int, step_ms: int, rules: RetentionRules) -> LogSpan:
    """What a broker has after these even records."""
    segments = []
    base, begun_ms = start, first_ms
    for offset in range(start, start + records):
        at_ms = first_ms + (offset - start) * step_ms
        if offset > base and (
            (offset - base + 1) * RECORD_BYTES > rules.segment_bytes or at_ms - begun_ms >= rules.segment_ms
        ):
            segments.append(SegmentSpan(base, offset, (offset - base) * RECORD_BYTES, at_ms - step_ms))
            base, begun_ms = offset, at_ms
    end = start + records
    last_ms = first_ms + (records - 1) * step_ms
    segments.append(SegmentSpan(base, end, (end - base) * RECORD_BYTES, last_ms))
    return LogSpan(start, end, tuple(segments), rules, begun_ms + rules.segment_ms)


def estimate(truth: LogSpan, position: int, first_ms: int, step_ms: int) -> LogSpan:
    first_unread = max(position, truth.start_offset)
    records = truth.end_offset - truth.start_offset
    return estimated_span(
        truth.start_offset,
        truth.end_offset,
        records * RECORD_BYTES,
        first_unread,
        first_ms + (first_unread - truth.start_offset) * step_ms,
        first_ms + (records - 1) * step_ms,
        truth.rules,
    )


def test_a_log_of_one_segment_goes_when_its_newest_record_is_too_old() -> None:
    """All of it goes at once: the first unread record stays as long as the newest does."""
    rules = RetentionRules(True, retention_ms=60_000)
    first_ms = NOW_MS - 25_000
    truth = true_span(0, 13, first_ms, 1000, rules)
    found = estimate(truth, 1, first_ms, 1000)
    assert [(each.base_offset, each.end_offset, each.newest_ms) for each in found.segments] == [
        (0, 13, first_ms + 12_000)
    ]
    loss_ms = time_to_data_loss_ms(found, 1, growth=Growth(), drained_per_ms=0, wall_ms=NOW_MS)
    assert loss_ms == time_to_data_loss_ms(truth, 1, growth=Growth(), drained_per_ms=0, wall_ms=NOW_MS)
    assert loss_ms == pytest.approx(47_000, abs=2)


@pytest.mark.parametrize("seed", range(40))
def test_even_records_are_lost_when_the_broker_says_they_are(seed: int) -> None:
    chosen = random.Random(seed)
    step_ms = chosen.choice([1, 10, 100])
    rules = RetentionRules(
        True,
        retention_ms=chosen.choice([-1, 20_000, 500_000]),
        retention_bytes=chosen.choice([-1, 30_000, 200_000]),
        segment_bytes=chosen.choice([1_000, 10_000, 1 << 30]),
        segment_ms=chosen.choice([5_000, 604_800_000]),
    )
    records = chosen.randrange(2, 3000)
    first_ms = NOW_MS - records * step_ms - chosen.randrange(1000)
    start = chosen.randrange(100)
    truth = true_span(start, records, first_ms, step_ms, rules)
    position = start + chosen.randrange(records)
    growing = Growth(1 / step_ms, RECORD_BYTES / step_ms)
    for growth in (Growth(), growing):
        keywords = {"growth": growth, "drained_per_ms": 0.0, "wall_ms": NOW_MS}
        said = time_to_data_loss_ms(truth, position, **keywords)  # type: ignore[arg-type]
        found = time_to_data_loss_ms(estimate(truth, position, first_ms, step_ms), position, **keywords)  # type: ignore[arg-type]
        if said is None:
            assert found is None
        else:
            # By at most one record, or one segment's rounding.
            assert found == pytest.approx(said, abs=max(2 * step_ms, 25))


def test_without_a_time_or_a_size_only_what_is_known_counts() -> None:
    by_size = RetentionRules(True, retention_bytes=500)
    span = estimated_span(0, 10, 1000, 0, -1, -1, by_size)
    assert time_to_data_loss_ms(span, 0, growth=Growth(), drained_per_ms=0, wall_ms=NOW_MS) is None
    by_age = RetentionRules(True, retention_ms=1000)
    span = estimated_span(0, 10, None, 0, NOW_MS - 2000, NOW_MS - 2000, by_age)
    assert time_to_data_loss_ms(span, 0, growth=Growth(), drained_per_ms=0, wall_ms=NOW_MS) == 0


def test_a_log_of_very_many_segments_is_not_cut_into_all_of_them() -> None:
    rules = RetentionRules(True, retention_bytes=1 << 40, segment_bytes=100)
    span = estimated_span(0, 10_000_000, 10**9, 5, NOW_MS, NOW_MS, rules)
    assert len(span.segments) <= 1001
    assert span.segments[-1].end_offset == 10_000_000
