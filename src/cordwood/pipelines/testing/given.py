"""The records that a test gives to a pipeline: dicts of columns, bytes, or whole records.

Rows given as dicts are encoded as the input declares it, so that decoding is part of the test. What a Python function
parses (`parsed_by`) can only be given as bytes, or as dicts that bypass that function.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime
from typing import TYPE_CHECKING, Any, Final

from cordwood.pipelines.definition.definition import Pipeline, Topic
from cordwood.pipelines.definition.record_formats import Format, Json, ParsedBy, Raw, Text

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_TIME: Final = datetime(2026, 1, 1, tzinfo=UTC)


@dataclass(frozen=True)
class Given:
    """A record. A value that is None makes it a tombstone."""

    value: Mapping[str, Any] | bytes | str | None
    key: Any = None
    partition: int = 0
    timestamp: datetime = _TIME
    headers: Sequence[tuple[str, bytes | None]] = ()


GivenRow = Given | Mapping[str, Any] | bytes | str | None
"""None is a tombstone without a key."""


def record(
    value: Mapping[str, Any] | bytes | str | None,
    *,
    key: Any = None,
    partition: int = 0,
    timestamp: datetime = _TIME,
    headers: Sequence[tuple[str, bytes | None]] = (),
) -> Given:
    """A record with a key, a partition, a time or headers of its own."""
    return Given(value, key, partition, timestamp, headers)


def tombstone(key: Any, *, partition: int = 0) -> Given:
    """A record without a value: it deletes what has this key."""
    return Given(None, key, partition)


@dataclass(frozen=True)
class Encoded:
    """A record as it is in the log."""

    topic: str
    key: bytes | None
    value: bytes | None
    partition: int
    timestamp: datetime
    headers: Sequence[tuple[str, bytes | None]]


def encoded(topic: Topic, rows: Sequence[GivenRow]) -> list[Encoded]:
    """The records of one input."""
    return [_encoded(topic, row if isinstance(row, Given) else Given(row)) for row in rows]


def bypassing(pipeline: Pipeline, given: Mapping[str, Sequence[GivenRow]]) -> Pipeline:
    """The pipeline, in which inputs that a Python function parses take JSON where their rows are given as dicts."""

    def format_of(topic: Topic, rows: Sequence[GivenRow]) -> Format | None:
        values = [row.value if isinstance(row, Given) else row for row in rows]
        is_parsed = isinstance(topic.value, ParsedBy) and any(isinstance(each, Mapping) for each in values)
        return Json(topic.value.schema) if is_parsed and isinstance(topic.value, ParsedBy) else topic.value

    inputs = {
        name: replace(topic, value=format_of(topic, given.get(name, ()))) for name, topic in pipeline.inputs.items()
    }
    return replace(pipeline, inputs=inputs)


def source_of(spark: "SparkSession", records: Sequence[Encoded]) -> "DataFrame":
    """The records as the source gives them, with offsets in the order of each partition."""
    from cordwood.pipelines.execution.checking_rules import SOURCE

    ends: dict[tuple[str, int], int] = {}
    rows = []
    for each in records:
        place = (each.topic, each.partition)
        offset = ends.get(place, 0)
        ends[place] = offset + 1
        headers = list(each.headers)
        rows.append((each.key, each.value, each.topic, each.partition, offset, each.timestamp, 0, headers))
    return spark.createDataFrame(rows, SOURCE).coalesce(1)


def _encoded(topic: Topic, given: Given) -> Encoded:
    value, key = given.value, given.key
    if isinstance(value, Mapping) and topic.key is not None and key is None:
        columns = dict(value)
        key, value = columns.pop("key", None), columns
    assert not isinstance(topic.key, str)
    return Encoded(
        topic.name,
        _bytes(topic.key, key, "key", topic),
        _bytes(topic.value, value, "value", topic),
        given.partition,
        given.timestamp,
        given.headers,
    )


def _bytes(format_: Format | None, value: Any, part: str, topic: Topic) -> bytes | None:
    if isinstance(value, Mapping) and isinstance(format_, Raw | Text):
        unknown = sorted(set(value) - {part})
        if unknown:
            raise TypeError(f"input {topic.name} has one column, {part}, and no {', '.join(unknown)}")
        value = value.get(part)
    if value is None or isinstance(value, bytes):
        return value
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, Mapping) and isinstance(format_, Json):
        return json.dumps(value, default=_in_json, ensure_ascii=False).encode()
    raise TypeError(f"input {topic.name}: {value!r} cannot be a record's {part}: a dict of columns, bytes or text can")


def _in_json(value: Any) -> Any:
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, bytes):
        import base64

        return base64.b64encode(value).decode()
    return str(value)
