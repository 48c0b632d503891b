"""What is said about one position: how far behind, for how long, and what is lost."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cordwood.lag.arrival import Mark, arrival_ms
from cordwood.lag.data_loss import Growth, LogSpan, RetentionRules, SegmentSpan
from cordwood.lag.position import PositionLag, Standing, evaluate

NOW_MS = 1_000_000
LOG = LogSpan(
    100,
    400,
    (SegmentSpan(100, 200, 1000, 700_000), SegmentSpan(200, 300, 1000, 800_000), SegmentSpan(300, 400, 1000, 900_000)),
    RetentionRules(deletes=True, retention_ms=500_000),
)
MARKS = [Mark(200, 700_000), Mark(300, 800_000), Mark(400, 900_000)]


def lag_of(position: int | None, log: LogSpan = LOG, drain_per_s: float | None = None) -> PositionLag:
    return evaluate(log, position, marks=MARKS, growth=Growth(), drain_per_s=drain_per_s, wall_ms=NOW_MS)


def test_a_group_that_never_committed_has_no_lag_and_no_loss_only_a_bound() -> None:
    found = lag_of(None)
    assert found.standing is Standing.NEVER_COMMITTED
    assert found.lag_records is None
    assert found.time_to_data_loss_ms is None
    assert found.lost_records == 0
    assert found.unread_at_most == 300


def test_a_position_at_the_end_is_caught_up_and_has_nothing_to_lose() -> None:
    assert lag_of(400) == PositionLag(Standing.CAUGHT_UP, 400, 0, 0, 0, 0, None, None)


def test_a_position_behind_says_how_long_its_next_record_has_waited_and_when_it_goes() -> None:
    found = lag_of(299)
    assert found.standing is Standing.BEHIND
    assert found.lag_records == 101
    assert found.lag_ms == NOW_MS - 800_000
    assert found.time_to_data_loss_ms == 800_000 + 500_000 + 1 - NOW_MS


def test_an_overtaken_position_counts_what_is_lost_and_only_what_is_there_as_lag() -> None:
    found = lag_of(40)
    assert found.standing is Standing.OVERTAKEN
    assert found.lost_records == 60
    assert found.lag_records == 300
    assert found.time_to_data_loss_ms == 700_000 + 500_000 + 1 - NOW_MS


def test_a_position_after_the_end_is_said_to_be_so() -> None:
    found = lag_of(401)
    assert (found.standing, found.lag_records, found.time_to_data_loss_ms) == (Standing.AHEAD, 0, None)


def test_an_empty_partition_has_no_lag() -> None:
    empty = LogSpan(0, 0, (), RetentionRules(deletes=True, retention_ms=1, retention_bytes=1))
    assert lag_of(0, empty) == PositionLag(Standing.CAUGHT_UP, 0, 0, 0, 0, 0, None, None)


def test_an_emptied_partition_has_lost_all_that_was_not_read() -> None:
    emptied = LogSpan(400, 400, (SegmentSpan(400, 400, 0, -1),), RetentionRules(deletes=True, retention_ms=1))
    found = lag_of(150, emptied)
    assert (found.standing, found.lost_records, found.lag_records) == (Standing.OVERTAKEN, 250, 0)
    assert found.time_to_data_loss_ms is None


@pytest.mark.parametrize(
    "rules",
    [
        RetentionRules(deletes=False, retention_ms=1, retention_bytes=1),
        RetentionRules(deletes=True, retention_ms=-1, retention_bytes=-1),
    ],
)
def test_neither_a_compacted_nor_an_unlimited_topic_loses_by_retention(rules: RetentionRules) -> None:
    assert lag_of(100, LOG._replace(rules=rules)).time_to_data_loss_ms is None


def test_records_without_timestamps_are_driven_out_by_size_only() -> None:
    segments = tuple(segment._replace(newest_ms=-1) for segment in LOG.segments)
    assert lag_of(100, LOG._replace(segments=segments)).time_to_data_loss_ms is None


def test_a_reader_that_is_fast_enough_loses_nothing() -> None:
    # Its 300 records go in 200, 300 and 400 seconds.
    assert lag_of(100, drain_per_s=1.0).time_to_data_loss_ms is None
    assert lag_of(100, drain_per_s=0.49).time_to_data_loss_ms == 200_001


@given(st.lists(st.tuples(st.integers(0, 100), st.integers(0, 1000))), st.integers(0, 100))
def test_a_record_came_between_the_marks_around_it(pairs: list[tuple[int, int]], offset: int) -> None:
    marks = [Mark(*pair) for pair in pairs]
    came_ms = arrival_ms(offset, marks)
    later = [mark for mark in marks if mark.offset > offset]
    if not later:
        assert came_ms is None
    else:
        assert came_ms is not None
        nearest = min(later)
        assert came_ms <= nearest.at_ms
        earlier = [mark for mark in marks if mark.offset <= offset]
        assert came_ms >= min(nearest.at_ms, max(earlier).at_ms if earlier else nearest.at_ms)


def test_a_timestamp_in_the_future_says_nothing_about_how_long_a_record_has_waited() -> None:
    def lag_ms(*marks: Mark) -> int | None:
        return evaluate(LOG, 299, marks=marks, growth=Growth(), drain_per_s=None, wall_ms=NOW_MS).lag_ms

    ahead = Mark(300, NOW_MS + 60_000)
    assert lag_ms(ahead) is None
    # The log was seen to end at 400 then: the record had come by that time.
    assert lag_ms(ahead, Mark(400, NOW_MS - 5_000)) == 5_000
