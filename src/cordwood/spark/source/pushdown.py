"""Filters that a batch read applies by itself, on partitions, offsets and times.

The functions are pure. Filters on topic, partition and offset are exact: Spark need not look again. A filter on
timestamp only shows where reading may begin (no record before that offset is late enough) and which rows need not be
sent; times do not have to grow with offsets, so Spark checks them again. Other filters are left to Spark.
"""

import datetime
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
    Not,
)

from cordwood.model.identifiers import TopicPartition
from cordwood.spark.source.pushed_filters import PushedFilters

_NEVER_NULL = frozenset({"topic", "partition", "offset", "timestamp", "timestampType"})
_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
_MICROSECOND = datetime.timedelta(microseconds=1)


@dataclass(frozen=True)
class _OfPartitions:
    """A decidable filter on topic or partition."""

    condition: Filter

    def holds(self, partition: TopicPartition) -> bool:
        return _holds(self.condition, {"topic": partition.topic, "partition": partition.partition})


def push(filters: Iterable[Filter]) -> PushedFilters:
    """Combines filters that must all hold. `left_to_spark` has the filters that Spark must apply, the same objects that
    came in."""
    pushed = PushedFilters()
    left = []
    for condition in filters:
        taken = _take(pushed, condition)
        if taken is None:
            left.append(condition)
            continue
        pushed, exact = taken
        if not exact:
            left.append(condition)
    return replace(pushed, left_to_spark=tuple(left))


def _take(pushed: PushedFilters, condition: Filter) -> tuple[PushedFilters, bool] | None:
    """Adds a filter, and tells whether nothing of it is left to Spark; None if it cannot be used."""
    if isinstance(condition, IsNotNull):
        return (pushed, True) if condition.attribute[0] in _NEVER_NULL else None
    column = _column(condition)
    if column in ("topic", "partition") and _is_decidable(condition, str if column == "topic" else int):
        return replace(pushed, of_partitions=(*pushed.of_partitions, _OfPartitions(condition))), True
    if column == "offset":
        bounds = _bounds(condition, int)
        if bounds is None:
            return None
        (low, high), exact = bounds
        limited = replace(
            pushed, min_offset=_later(pushed.min_offset, low), max_offset=_earlier(pushed.max_offset, high)
        )
        return limited, exact
    if column == "timestamp":
        bounds = _bounds(condition, datetime.datetime)
        if bounds is None:
            return None
        (low, high), _ = bounds
        limited = replace(
            pushed,
            min_timestamp_us=_later(pushed.min_timestamp_us, low),
            max_timestamp_us=_earlier(pushed.max_timestamp_us, high),
        )
        return limited, False
    return None


def _column(condition: Filter) -> str | None:
    inner = condition.child if isinstance(condition, Not) else condition
    attribute: tuple[str, ...] = getattr(inner, "attribute", ())
    return attribute[0] if len(attribute) == 1 else None


def _is(value: Any, kind: type) -> bool:
    return isinstance(value, kind) and not isinstance(value, bool)


def _is_decidable(condition: Filter, kind: type) -> bool:
    """True if `_holds` decides as Spark would, for a column that is never null."""
    inner = condition.child if isinstance(condition, Not) else condition
    if isinstance(inner, In):
        return all(_is(value, kind) for value in inner.value)
    comparisons = EqualTo | EqualNullSafe | GreaterThan | GreaterThanOrEqual | LessThan | LessThanOrEqual
    # Spark compares text as bytes of UTF-8, Python as code points: the order is the same.
    return isinstance(inner, comparisons) and _is(inner.value, kind)


def _holds(condition: Filter, values: Mapping[str, Any]) -> bool:
    match condition:
        case Not(child):
            return not _holds(child, values)
        case EqualTo((column,), value) | EqualNullSafe((column,), value):
            return bool(values[column] == value)
        case GreaterThan((column,), value):
            return bool(values[column] > value)
        case GreaterThanOrEqual((column,), value):
            return bool(values[column] >= value)
        case LessThan((column,), value):
            return bool(values[column] < value)
        case LessThanOrEqual((column,), value):
            return bool(values[column] <= value)
        case In((column,), among):
            return values[column] in among
    raise AssertionError(f"a filter that was not decidable: {condition}")


def _bounds(condition: Filter, kind: type) -> tuple[tuple[int | None, int | None], bool] | None:
    """The inclusive bounds of a filter, in whole numbers, and whether they are all that it says; None if it sets
    none."""
    if isinstance(condition, In):
        numbers = [_as_number(value) for value in condition.value if _is(value, kind)]
        if not numbers or len(numbers) != len(condition.value):
            return None
        return (min(numbers), max(numbers)), False
    value = getattr(condition, "value", None)
    if not _is(value, kind):
        return None
    number = _as_number(value)
    match condition:
        case EqualTo() | EqualNullSafe():
            return (number, number), True
        case GreaterThan():
            return (number + 1, None), True
        case GreaterThanOrEqual():
            return (number, None), True
        case LessThan():
            return (None, number - 1), True
        case LessThanOrEqual():
            return (None, number), True
    return None


def _as_number(value: Any) -> int:
    if isinstance(value, datetime.datetime):
        aware = value if value.tzinfo is not None else value.astimezone()
        return (aware - _EPOCH) // _MICROSECOND
    return int(value)


def _later(one: int | None, other: int | None) -> int | None:
    return other if one is None else one if other is None else max(one, other)


def _earlier(one: int | None, other: int | None) -> int | None:
    return other if one is None else one if other is None else min(one, other)
