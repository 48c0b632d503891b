"""The beginning, the end and the partitions of a read, as users name them. Values only.

`survey.py` turns the values into offsets of a cluster.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

from cordwood.model.identifiers import TopicPartition


class Edge(Enum):
    EARLIEST = "earliest"
    LATEST = "latest"


@dataclass(frozen=True)
class AtOffsets:
    """An offset for each partition; -2 is its earliest, -1 its latest."""

    positions: Mapping[TopicPartition, int]


@dataclass(frozen=True)
class AtTimes:
    """The first record at or after a time, for each partition."""

    timestamps_ms: Mapping[TopicPartition, int]


@dataclass(frozen=True)
class AtTime:
    """The first record at or after one time, in every partition."""

    timestamp_ms: int


@dataclass(frozen=True)
class AtGroup:
    """A group's committed positions; the earliest offset in partitions without one."""

    group: str


Boundary = Edge | AtOffsets | AtTimes | AtTime | AtGroup


class NoLaterRecord(Enum):
    """The reaction if no record is as late as the time that was asked for."""

    ERROR = "error"
    LATEST = "latest"


@dataclass(frozen=True)
class Topics:
    """`subscribe`: these topics, with all partitions that they have and get."""

    names: tuple[str, ...]


@dataclass(frozen=True)
class Pattern:
    """`subscribePattern`: every topic whose whole name matches, also later ones."""

    text: str
    exclude_internal: bool = True

    def matches(self, topic: str) -> bool:
        return re.fullmatch(self.text, topic) is not None


@dataclass(frozen=True)
class Partitions:
    """`assign`: these partitions and no others."""

    partitions: frozenset[TopicPartition]

    @property
    def topics(self) -> tuple[str, ...]:
        return tuple(sorted({topic for topic, _ in self.partitions}))


Subscription = Topics | Pattern | Partitions
