"""Bounds the number of remembered producers, in one partition and in all partitions of this process.

A producer id costs a kilobyte for `producer.id.expiration.ms`, a day, and a client can make ids up. Beyond a bound the
producers silent for longest are forgotten, except producers with an open transaction. A forgotten producer gets
UNKNOWN_PRODUCER_ID for its next batch and begins anew, also after a restart. Only the retry of its very first batch,
sequence 0, looks like a new producer's and is appended once more: docs/decisions/forgotten-producers.md.
"""

from itertools import count
from typing import Protocol
from weakref import WeakValueDictionary

MAX_IN_PARTITION = 10_000
"""More producers than a broker has connections that write to one partition."""

MAX_IN_ALL = 100_000


class Remembering(Protocol):
    """The producers of one partition."""

    def __len__(self) -> int: ...

    def forget_silent(self, how_many: int, boot_ms: int) -> int:
        """Forgets the producers silent for longest; returns their number."""


class ProducerBounds:
    def __init__(self, in_partition: int = MAX_IN_PARTITION, in_all: int = MAX_IN_ALL) -> None:
        self._in_partition = in_partition
        self._in_all = in_all
        self._partitions: WeakValueDictionary[int, Remembering] = WeakValueDictionary()
        self._numbers = count()
        self._room = in_all
        """The room for further producers before all have to be counted."""

    def watch(self, partition: Remembering) -> None:
        self._partitions[next(self._numbers)] = partition

    def added(self, partition: Remembering, how_many: int, boot_ms: int) -> None:
        """Makes room for new producers of a partition."""
        if len(partition) >= self._in_partition:
            # A tenth is forgotten at once: the search looks at all producers.
            partition.forget_silent(len(partition) - self._in_partition * 9 // 10, boot_ms)
        if self._room < how_many:
            self._make_room(boot_ms)
        self._room -= how_many

    def _make_room(self, boot_ms: int) -> None:
        partitions = sorted(self._partitions.items(), key=lambda each: (-len(each[1]), each[0]))
        total = sum(len(partition) for _, partition in partitions)
        if total >= self._in_all:
            for _, partition in partitions:
                total -= partition.forget_silent(-(-len(partition) // 2), boot_ms)
                if total <= self._in_all * 9 // 10:
                    break
        self._room = max(self._in_all - total, self._in_all // 100)


SHARED = ProducerBounds()
