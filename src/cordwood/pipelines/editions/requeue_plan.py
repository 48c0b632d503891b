"""`requeue.json` of an edition: the quarantined records that were sent through again, and those about to be.

A requeue writes down its records before it sends them. Pending records may be in some outputs already.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

from cordwood.pipelines.definition.errors import DamagedState
from cordwood.pipelines.editions.editions import PipelineState

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


_FORMAT: Final = 1


@dataclass(frozen=True)
class RequeuePlan:
    number: int = -1
    """The number of the last requeue."""
    done: OffsetSet = field(default_factory=OffsetSet)
    """Offsets of the quarantine topic that were sent."""
    pending: OffsetSet | None = None
    topic_id: str | None = None
    """The id of the quarantine topic: the offsets mean nothing in a topic that was made again."""


def read_plan(state: PipelineState, edition: str) -> RequeuePlan:
    path = _path(state, edition)
    value = state.files.read(path)
    if value is None:
        return RequeuePlan()
    if value.get("format") != _FORMAT:
        raise DamagedState(f"{path} is of format {value.get('format')!r}")
    pending = None if value["pending"] is None else OffsetSet.from_json(value["pending"])
    return RequeuePlan(value["number"], OffsetSet.from_json(value["done"]), pending, value.get("topic_id"))


def write_plan(state: PipelineState, edition: str, plan: RequeuePlan) -> None:
    state.files.replace(
        _path(state, edition),
        {
            "format": _FORMAT,
            "number": plan.number,
            "done": plan.done.to_json(),
            "pending": None if plan.pending is None else plan.pending.to_json(),
            "topic_id": plan.topic_id,
        },
    )


def _path(state: PipelineState, edition: str) -> Path:
    return state.edition_directory(edition) / "requeue.json"
