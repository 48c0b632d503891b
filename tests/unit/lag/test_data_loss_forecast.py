"""The forecast of loss, beside a dumb twin: a log that really grows, rolls, ages and is cut, ms by ms."""

import math

from hypothesis import given, settings
from hypothesis import strategies as st

from cordwood.lag.data_loss import Growth, LogSpan, RetentionRules, SegmentSpan, time_to_data_loss_ms

NOW_MS = 10_000
LONGEST_MS = 1000


class Twin:
    """Every millisecond a batch comes, a reader reads, and retention is applied as in `log/upkeep/retention.py`."""

    def __init__(self, log: LogSpan, position: int, batch_records: int, batch_bytes: int, drained_per_ms: int) -> None:
        self.segments = [list(segment) for segment in log.segments]
        self.total_bytes = sum(segment.size_bytes for segment in log.segments)
        self.rules = log.rules
        self.roll_at_ms = log.roll_at_ms
        self.position = position
        self.end_offset = log.end_offset
        self.start_offset = log.start_offset
        self.batch_records, self.batch_bytes = batch_records, batch_bytes
        self.drained_per_ms = drained_per_ms

    def loss_in_ms(self) -> int | None:
        for passed_ms in range(LONGEST_MS):
            now_ms = NOW_MS + passed_ms
            if passed_ms:
                if self.batch_records:
                    self._append(now_ms)
                self.position = min(self.position + self.drained_per_ms, self.end_offset)
            self._retain(now_ms)
            if self.position < self.start_offset:
                return passed_ms
        return None

    def _append(self, now_ms: int) -> None:
        full = self.segments and self.segments[-1][2] + self.batch_bytes > self.rules.segment_bytes
        if self.roll_at_ms is None or full or now_ms > self.roll_at_ms:
            self.segments.append([self.end_offset, self.end_offset, 0, -1])
            self.roll_at_ms = now_ms - 1 + self.rules.segment_ms
        self.end_offset += self.batch_records
        self.total_bytes += self.batch_bytes
        last = self.segments[-1]
        last[1], last[2], last[3] = self.end_offset, last[2] + self.batch_bytes, now_ms

    def _retain(self, now_ms: int) -> None:
        rules = self.rules
        while rules.deletes and self.segments:
            _, end_offset, size, newest_ms = self.segments[0]
            too_large = 0 <= rules.retention_bytes <= self.total_bytes - size
            too_old = rules.retention_ms >= 0 and 0 <= newest_ms < now_ms - rules.retention_ms
            if not size or not (too_large or too_old):
                return
            del self.segments[0]
            self.total_bytes -= size
            self.start_offset = end_offset
            if not self.segments:
                self.roll_at_ms = None


@st.composite
def logs(draw: st.DrawFn, batch_bytes: int) -> LogSpan:
    segment_batches = draw(st.integers(1, 20))
    counts = draw(st.lists(st.integers(1, 40), min_size=1, max_size=5))
    offset = start = draw(st.integers(0, 50))
    newest_ms = NOW_MS - draw(st.integers(0, 400))
    segments = []
    for count in counts:
        size = draw(st.integers(1, segment_batches)) * batch_bytes
        segments.append(SegmentSpan(offset, offset + count, size, newest_ms))
        offset += count
        newest_ms = min(newest_ms + draw(st.integers(-20, 100)), NOW_MS)
    rules = RetentionRules(
        deletes=draw(st.integers(0, 9)) > 0,
        retention_ms=draw(st.sampled_from([-1, 0, 50, 200])),
        retention_bytes=draw(st.one_of(st.just(-1), st.integers(1, 60).map(lambda count: count * batch_bytes))),
        segment_bytes=segment_batches * batch_bytes,
        segment_ms=draw(st.sampled_from([7, 30, 1_000_000])),
    )
    roll_at_ms = draw(st.one_of(st.none(), st.integers(0, 40).map(lambda later: NOW_MS + later)))
    return LogSpan(start, offset, tuple(segments), rules, roll_at_ms)


@settings(max_examples=100, deadline=None)
@given(st.data())
def test_the_forecast_agrees_with_a_log_that_really_loses(data: st.DataObject) -> None:
    batch_records, batch_bytes = data.draw(st.sampled_from([(0, 0), (1, 10), (3, 10), (4, 7)]))
    log = data.draw(logs(max(batch_bytes, 1)))
    position = data.draw(st.integers(log.start_offset, log.end_offset))
    drained_per_ms = data.draw(st.integers(0, 4))
    growth = Growth(float(batch_records), float(batch_bytes))
    actual = Twin(log, position, batch_records, batch_bytes, drained_per_ms).loss_in_ms()

    def forecast(position: int) -> float:
        found = time_to_data_loss_ms(log, position, growth=growth, drained_per_ms=float(drained_per_ms), wall_ms=NOW_MS)
        return math.inf if found is None else found

    # The twin's time goes in whole milliseconds and whole batches: who escapes by a hair may not escape there.
    hair = 2 * (batch_records + drained_per_ms)
    earliest, latest = forecast(position - hair), forecast(position + hair)
    assert earliest <= (math.inf if actual is None else actual + 3), (earliest, actual)
    if latest < LONGEST_MS - 3:
        assert actual is not None
        assert actual <= latest + 3


@settings(deadline=None)
@given(st.data())
def test_who_reads_faster_or_is_further_on_loses_no_sooner(data: st.DataObject) -> None:
    log = data.draw(logs(10))
    growth = Growth(*data.draw(st.tuples(st.floats(0, 5), st.floats(0, 100))))
    position = data.draw(st.integers(log.start_offset, log.end_offset))
    slow = data.draw(st.floats(0, 6))

    def loss(position: int, drained_per_ms: float) -> float:
        found = time_to_data_loss_ms(log, position, growth=growth, drained_per_ms=drained_per_ms, wall_ms=NOW_MS)
        assert found is None or found >= 0
        return math.inf if found is None else found

    further = data.draw(st.integers(position, log.end_offset))
    faster = data.draw(st.floats(slow, 8))
    assert loss(position, slow) <= loss(further, slow) * (1 + 1e-9)
    assert loss(position, slow) <= loss(position, faster) * (1 + 1e-9)


@settings(deadline=None)
@given(st.data())
def test_more_retention_loses_no_sooner(data: st.DataObject) -> None:
    log = data.draw(logs(10))
    position = data.draw(st.integers(log.start_offset, log.end_offset))
    more = data.draw(st.integers(0, 500))
    longer = log._replace(
        rules=log.rules._replace(
            retention_ms=-1 if log.rules.retention_ms < 0 else log.rules.retention_ms + more,
            retention_bytes=-1 if log.rules.retention_bytes < 0 else log.rules.retention_bytes + more,
        )
    )

    def loss(log: LogSpan) -> float:
        found = time_to_data_loss_ms(log, position, growth=Growth(), drained_per_ms=0.0, wall_ms=NOW_MS)
        return math.inf if found is None else found

    assert loss(log) <= loss(longer)


def test_a_stopped_reader_at_the_end_is_overtaken_when_what_comes_now_has_aged() -> None:
    rules = RetentionRules(deletes=True, retention_ms=1000, segment_bytes=100, segment_ms=10**9)
    log = LogSpan(0, 10, (SegmentSpan(0, 10, 50, NOW_MS),), rules, roll_at_ms=NOW_MS + 10**9)
    # 50 bytes of room are full in 50 ms; the segment then lives for retention.ms.
    loss = time_to_data_loss_ms(log, 10, growth=Growth(1.0, 1.0), drained_per_ms=0.0, wall_ms=NOW_MS)
    assert loss == 50 + 1001


def test_a_timestamp_in_the_future_holds_up_all_that_is_behind_it() -> None:
    rules = RetentionRules(deletes=True, retention_ms=100, segment_bytes=100, segment_ms=10**9)
    segments = (SegmentSpan(0, 10, 50, NOW_MS + 5000), SegmentSpan(10, 20, 50, NOW_MS))
    log = LogSpan(0, 20, segments, rules, roll_at_ms=None)
    assert time_to_data_loss_ms(log, 15, growth=Growth(), drained_per_ms=0.0, wall_ms=NOW_MS) == 5101
    # With traffic, too: what comes now is due long before, and goes with it.
    assert time_to_data_loss_ms(log, 20, growth=Growth(1.0, 1.0), drained_per_ms=0.0, wall_ms=NOW_MS) == 5101


def test_a_log_without_segments_and_with_traffic_loses_what_comes() -> None:
    rules = RetentionRules(deletes=True, retention_bytes=1000, segment_bytes=100, segment_ms=10**9)
    log = LogSpan(0, 0, (), rules)
    assert time_to_data_loss_ms(log, 0, growth=Growth(1.0, 1.0), drained_per_ms=0.0, wall_ms=NOW_MS) == 100 + 1000
