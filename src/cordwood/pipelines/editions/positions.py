"""Positions of a pipeline: the offset of the next record in every partition of its topics.

Positions are ordered only within a partition: one may be ahead in one partition and behind in another.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from cordwood.pipelines.definition.errors import DamagedState
from cordwood.spark.source.offsets import without_beginning

Positions = Mapping[str, Mapping[int, int]]
"""Topic → partition → next offset."""


def from_json(value: Any) -> dict[str, dict[int, int]]:
    """Parses `{"orders": {"0": 12}}`, the form that Spark's checkpoints have, too."""
    try:
        return {
            str(topic): {int(partition): int(offset) for partition, offset in partitions.items()}
            for topic, partitions in without_beginning(value).items()
        }
    except (AttributeError, TypeError, ValueError) as error:
        raise DamagedState(f"these are no positions: {value!r}") from error


def to_json(positions: Positions) -> dict[str, dict[str, int]]:
    return {
        topic: {str(partition): offset for partition, offset in sorted(partitions.items())}
        for topic, partitions in sorted(positions.items())
    }


def furthest(first: Positions, second: Positions) -> dict[str, dict[int, int]]:
    """The later of two positions in every partition."""
    merged = {topic: dict(partitions) for topic, partitions in first.items()}
    for topic, partitions in second.items():
        known = merged.setdefault(topic, {})
        for partition, offset in partitions.items():
            known[partition] = max(known.get(partition, 0), offset)
    return merged


def ahead(first: Positions, second: Positions) -> dict[str, dict[int, tuple[int, int]]]:
    """The ranges of offsets by which `first` is ahead of `second`."""
    found: dict[str, dict[int, tuple[int, int]]] = {}
    for topic, partitions in first.items():
        for partition, offset in partitions.items():
            other = second.get(topic, {}).get(partition, 0)
            if offset > other:
                found.setdefault(topic, {})[partition] = (other, offset)
    return found


def distance(ranges: Mapping[str, Mapping[int, tuple[int, int]]]) -> int:
    """How many offsets the ranges of `ahead` span."""
    return sum(end - start for partitions in ranges.values() for start, end in partitions.values())


def lacking(first: Positions, second: Positions) -> int:
    """How many offsets `second` is behind `first`, in the topics of both. Without a topic it has read nothing."""
    return distance(ahead({topic: each for topic, each in first.items() if topic in second or not second}, second))


def places_in_words(positions: Positions, limit: int = 5) -> str:
    """`orders/0@120`, for at most `limit` partitions."""
    flat = [(topic, *each) for topic, partitions in sorted(positions.items()) for each in sorted(partitions.items())]
    shown = ", ".join(f"{topic}/{partition}@{offset}" for topic, partition, offset in flat[:limit])
    return shown if len(flat) <= limit else f"{shown} and {len(flat) - limit} more"


def in_words(ranges: Mapping[str, Mapping[int, tuple[int, int]]], limit: int = 5) -> str:
    """`orders/0: 3 to 12`, for at most `limit` partitions."""
    flat = list(_flat(ranges))
    shown = "; ".join(f"{topic}/{partition}: {start} to {end}" for topic, partition, start, end in flat[:limit])
    return shown if len(flat) <= limit else f"{shown}; and {len(flat) - limit} more partitions"


def _flat(ranges: Mapping[str, Mapping[int, tuple[int, int]]]) -> Iterable[tuple[str, int, int, int]]:
    for topic, partitions in sorted(ranges.items()):
        for partition, (start, end) in sorted(partitions.items()):
            yield topic, partition, start, end
