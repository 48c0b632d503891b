"""Filters that a read applies by itself, and filters that it leaves to Spark."""

import datetime

import pytest
from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    IsNull,
    LessThan,
    LessThanOrEqual,
    Not,
    StringStartsWith,
)

from cordwood.model.identifiers import TopicPartition
from cordwood.spark.source.pushdown import push

OFFSET, PARTITION, TOPIC, TIMESTAMP = ("offset",), ("partition",), ("topic",), ("timestamp",)


@pytest.mark.parametrize(
    ("filters", "left"),
    [
        ([EqualTo(OFFSET, 5)], (5, 6)),
        ([EqualNullSafe(OFFSET, 5)], (5, 6)),
        ([GreaterThan(OFFSET, 5)], (6, 100)),
        ([GreaterThanOrEqual(OFFSET, 5), LessThan(OFFSET, 9)], (5, 9)),
        ([LessThanOrEqual(OFFSET, 9)], (0, 10)),
        ([LessThanOrEqual(OFFSET, 9), LessThan(OFFSET, 3)], (0, 3)),
        ([GreaterThan(OFFSET, 500)], (501, 501)),
    ],
)
def test_filters_on_offset_are_exact(filters: list[Filter], left: tuple[int, int]) -> None:
    pushed = push(filters)
    assert pushed.left_to_spark == ()
    assert pushed.clamp(0, 100) == left


@pytest.mark.parametrize(
    ("condition", "allowed"),
    [
        (EqualTo(PARTITION, 2), {2}),
        (EqualNullSafe(PARTITION, 2), {2}),
        (Not(EqualTo(PARTITION, 2)), {0, 1, 3}),
        (In(PARTITION, (0, 3, 9)), {0, 3}),
        (Not(In(PARTITION, (0, 3, 9))), {1, 2}),
        (GreaterThan(PARTITION, 1), {2, 3}),
        (GreaterThanOrEqual(PARTITION, 1), {1, 2, 3}),
        (LessThan(PARTITION, 1), {0}),
        (LessThanOrEqual(PARTITION, 1), {0, 1}),
        (EqualTo(TOPIC, "t"), {0, 1, 2, 3}),
        (EqualTo(TOPIC, "u"), set()),
        (In(TOPIC, ("t", "u")), {0, 1, 2, 3}),
    ],
)
def test_filters_on_partition_and_topic_are_exact(condition: Filter, allowed: set[int]) -> None:
    pushed = push([condition])
    assert pushed.left_to_spark == ()
    assert {index for index in range(4) if pushed.allows(TopicPartition("t", index))} == allowed


def test_filters_on_time_are_applied_and_left_to_spark() -> None:
    moment = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)
    filters: list[Filter] = [GreaterThan(TIMESTAMP, moment), LessThanOrEqual(TIMESTAMP, moment)]
    pushed = push(filters)
    microseconds = int(moment.timestamp()) * 1_000_000
    assert (pushed.min_timestamp_us, pushed.max_timestamp_us) == (microseconds + 1, microseconds)
    assert pushed.min_timestamp_ms == microseconds // 1000 + 1
    assert [id(condition) for condition in pushed.left_to_spark] == [id(condition) for condition in filters]


@pytest.mark.parametrize(("since_us", "asked_ms"), [(-1, None), (0, None), (1, 1), (1000, 1), (1001, 2)])
def test_brokers_are_not_asked_for_times_up_to_1970(since_us: int, asked_ms: int | None) -> None:
    moment = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC) + datetime.timedelta(microseconds=since_us)
    pushed = push([GreaterThanOrEqual(TIMESTAMP, moment)])
    assert (pushed.min_timestamp_us, pushed.min_timestamp_ms) == (since_us, asked_ms)


@pytest.mark.parametrize(
    "condition",
    [
        Not(EqualTo(OFFSET, 5)),
        EqualTo(OFFSET, "5"),
        EqualTo(OFFSET, True),
        EqualTo(PARTITION, 1.5),
        IsNull(OFFSET),
        IsNotNull(("key",)),
        EqualTo(("key",), b"x"),
        EqualTo(("headers", "key"), "x"),
        StringStartsWith(TOPIC, "t"),
        In(OFFSET, ("a",)),
    ],
)
def test_the_rest_is_left_to_spark(condition: Filter) -> None:
    pushed = push([condition])
    assert pushed.left_to_spark == (condition,)
    assert pushed.clamp(0, 10) == (0, 10)
    assert pushed.allows(TopicPartition("t", 0))


def test_a_list_of_offsets_bounds_the_range_and_is_left_to_spark() -> None:
    pushed = push([In(OFFSET, (7, 3, 5))])
    assert pushed.clamp(0, 100) == (3, 8)
    assert len(pushed.left_to_spark) == 1


def test_columns_that_are_never_null_need_no_check() -> None:
    assert push([IsNotNull(OFFSET), IsNotNull(TIMESTAMP)]).left_to_spark == ()
