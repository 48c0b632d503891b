"""Positions in many partitions, and their text: the JSON of Spark's Kafka source, `{"orders": {"0": 5}}`.

A position is the offset of the next record to read. Users write the text into options, and Spark keeps it in
checkpoints, where it compares texts and not numbers. So topics and partitions always come in one order, and this source
can go on with a checkpoint of Spark's Kafka source.

The end of a query's first batch says where the query began, too: `{"orders": {"00": 0, "0": 5}}`, where a partition's
number with a zero before it has the beginning. Spark keeps only the ends of batches. If it repeats the first batch it
asks again for the beginning, which may have moved by then. Spark's Kafka source reads `00` and `0` as one partition,
and takes the last entry: so it can go on with a checkpoint that was begun here.
"""

import json
from collections.abc import Callable, Mapping
from typing import Any, Final

from cordwood.client.answers import EARLIEST
from cordwood.model.identifiers import TopicPartition
from cordwood.spark.options.quantities import MAX_LONG

Positions = dict[TopicPartition, int]
SparkOffset = dict[str, dict[str, int]]
"""An offset as Spark's planner process turns it into JSON and back."""

_BEGAN: Final = "0"
"""The prefix of a partition's number that marks its beginning."""
_ONCE_BEGAN_AT: Final = " began at"
"""The suffix of a topic's name that marks beginnings in checkpoints of older versions."""


def to_spark(positions: Mapping[TopicPartition, int]) -> SparkOffset:
    """Positions in one order, by topic name and partition number: equal positions have equal text."""
    offset: SparkOffset = {}
    for (topic, partition), position in sorted(positions.items()):
        offset.setdefault(topic, {})[str(partition)] = int(position)
    return offset


def from_spark(offset: Mapping[str, Mapping[str, int]]) -> Positions:
    """Positions from an offset that Spark kept. Raises ValueError if it is not an offset of this source."""
    return _partition_values(without_beginning(offset), _offset_of_checkpoint)


def with_beginning(began: Mapping[TopicPartition, int], end: Mapping[TopicPartition, int]) -> SparkOffset:
    """The end of a query's first batch, with the query's beginning."""
    ends, starts = to_spark(end), to_spark(began)
    marked = {
        topic: {_BEGAN + partition: offset for partition, offset in partitions.items()}
        for topic, partitions in starts.items()
    }
    # The ends come last: Spark's Kafka source takes the last of two entries for one partition.
    return {topic: {**marked.get(topic, {}), **ends.get(topic, {})} for topic in sorted({*marked, *ends})}


def without_beginning(offset: Mapping[str, Any]) -> dict[str, Any]:
    """The offset without the beginning. A value that is no mapping of partitions stays, for the caller to refuse."""
    return {
        topic: {each: value for each, value in partitions.items() if not _is_beginning(each)}
        if isinstance(partitions, Mapping)
        else partitions
        for topic, partitions in offset.items()
        if not topic.endswith(_ONCE_BEGAN_AT)
    }


def beginning_in(offset: Mapping[str, Mapping[str, int]]) -> Positions:
    """The query's beginning, if this is the end of its first batch; else empty."""
    began: dict[str, dict[str, int]] = {}
    for topic, partitions in offset.items():
        if topic.endswith(_ONCE_BEGAN_AT):
            began[topic.removesuffix(_ONCE_BEGAN_AT)] = dict(partitions)
            continue
        marked = {each.removeprefix(_BEGAN): value for each, value in partitions.items() if _is_beginning(each)}
        if marked:
            began[topic] = marked
    return _partition_values(began, _offset_of_checkpoint)


def _is_beginning(partition: object) -> bool:
    return isinstance(partition, str) and len(partition) > 1 and partition.startswith(_BEGAN)


def parse_offsets(text: str) -> Positions:
    """Parses positions of an option: `{"orders": {"0": 23, "1": -1}}`, -2 for the earliest and -1 for the latest
    offset."""
    return _partition_values(_json(text), _offset)


def parse_timestamps(text: str) -> dict[TopicPartition, int]:
    """Parses times in ms of an option: `{"orders": {"0": 1000, "1": 1000}}`."""
    return _partition_values(_json(text), _timestamp)


def parse_partitions(text: str) -> frozenset[TopicPartition]:
    """Parses partitions of an option: `{"orders": [0, 1], "payments": [3]}`."""
    found = set()
    given = _json(text)
    if not isinstance(given, dict) or not given:
        raise ValueError('expected JSON as {"topic": [0, 1]}')
    for topic, partitions in given.items():
        if not isinstance(partitions, list) or not partitions:
            raise ValueError(f"expected a list of partition numbers for topic {topic}")
        for partition in partitions:
            found.add(TopicPartition(topic, _partition(topic, partition)))
    return frozenset(found)


def _json(text: str) -> Any:
    try:
        return json.loads(text)
    except json.JSONDecodeError as failure:
        raise ValueError(f"not JSON: {failure}") from None
    except RecursionError:
        raise ValueError("JSON within JSON, too deep to read") from None


def _partition_values(given: Any, value_of: Callable[[str, Any], int]) -> dict[TopicPartition, int]:
    if not isinstance(given, Mapping):
        raise ValueError('expected JSON as {"topic": {"0": 23, "1": 42}}')
    values = {}
    for topic, partitions in given.items():
        if not isinstance(partitions, Mapping):
            raise ValueError(f'expected partitions with their values for topic {topic}, as in {{"0": 23}}')
        for partition, value in partitions.items():
            name = TopicPartition(topic, _partition(topic, partition))
            values[name] = value_of(str(name), value)
    return values


def _partition(topic: str, given: Any) -> int:
    text = str(given)
    if isinstance(given, bool) or not text.isascii() or not text.isdecimal():
        raise ValueError(f"{given!r} is not a partition number of topic {topic}")
    return int(text)


def _number(name: str, given: Any) -> int:
    if isinstance(given, bool) or not isinstance(given, int):
        raise ValueError(f"expected a whole number for {name}, found {given!r}")
    if given > MAX_LONG:
        raise ValueError(f"{given} is too large for {name}: expected {MAX_LONG} or less")
    return given


def _offset(name: str, given: Any) -> int:
    offset = _number(name, given)
    if offset < EARLIEST:
        raise ValueError(f"{offset} is not an offset of {name}: use 0 or more, -2 for the earliest, -1 for the latest")
    return offset


def _offset_of_checkpoint(name: str, given: Any) -> int:
    offset = _number(name, given)
    if offset < 0:
        raise ValueError(f"{offset} is not an offset of {name}")
    return offset


def _timestamp(name: str, given: Any) -> int:
    timestamp_ms = _number(name, given)
    if timestamp_ms < 0:
        raise ValueError(f"{timestamp_ms} is not a time of {name}: use milliseconds since 1970")
    return timestamp_ms
