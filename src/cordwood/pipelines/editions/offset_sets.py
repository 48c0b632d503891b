"""Sets of offsets as few ranges: the quarantined records that were sent through again."""

from collections.abc import Iterable, Mapping
from itertools import pairwise
from typing import Any

from cordwood.pipelines.definition.errors import DamagedState

Ranges = tuple[tuple[int, int], ...]
"""Ranges in ascending order, with gaps between them; each excludes its end."""


class OffsetSet:
    """Offsets by partition. An immutable value: adding returns a new set."""

    def __init__(self, ranges: Mapping[int, Ranges] | None = None) -> None:
        self.ranges: dict[int, Ranges] = {partition: each for partition, each in sorted((ranges or {}).items()) if each}

    def __contains__(self, address: tuple[int, int]) -> bool:
        partition, offset = address
        return any(start <= offset < end for start, end in self.ranges.get(partition, ()))

    def __len__(self) -> int:
        return sum(end - start for ranges in self.ranges.values() for start, end in ranges)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, OffsetSet) and self.ranges == other.ranges

    def __hash__(self) -> int:
        return hash(tuple(self.ranges.items()))

    def with_offsets(self, addresses: Iterable[tuple[int, int]]) -> "OffsetSet":
        added: dict[int, list[tuple[int, int]]] = {partition: list(each) for partition, each in self.ranges.items()}
        for partition, offset in addresses:
            added.setdefault(partition, []).append((offset, offset + 1))
        return OffsetSet({partition: _merged(each) for partition, each in added.items()})

    def union(self, other: "OffsetSet") -> "OffsetSet":
        both = {*self.ranges, *other.ranges}
        return OffsetSet({each: _merged([*self.ranges.get(each, ()), *other.ranges.get(each, ())]) for each in both})

    def to_json(self) -> dict[str, list[list[int]]]:
        return {str(partition): [list(each) for each in ranges] for partition, ranges in self.ranges.items()}

    @classmethod
    def from_json(cls, value: Any) -> "OffsetSet":
        try:
            ranges = {
                int(partition): tuple((int(start), int(end)) for start, end in each)
                for partition, each in value.items()
            }
        except (AttributeError, TypeError, ValueError) as error:
            raise DamagedState(f"these are no ranges of offsets: {value!r}") from error
        for each in ranges.values():
            if any(start >= end for start, end in each) or any(one[1] >= two[0] for one, two in pairwise(each)):
                raise DamagedState(f"these ranges of offsets are not in order: {value!r}")
        return cls(ranges)


def _merged(ranges: list[tuple[int, int]]) -> Ranges:
    merged: list[tuple[int, int]] = []
    for start, end in sorted(ranges):
        if merged and start <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(merged[-1][1], end))
        else:
            merged.append((start, end))
    return tuple(merged)
