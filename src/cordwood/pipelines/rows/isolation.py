"""Finds the records that a function fails on: any failure of any function, with no help from it.

The batch failed as a whole. It is tried again in pieces, each of which is a task of its own: the task that fails tells
the piece. Pieces are cut by a hash of the record's address, so that they are alike in size whatever the offsets are. A
piece that fails is cut in turn, down to single records that are tried alone. So each poison record costs a few tries,
and the number of allowed poison records bounds the search. Where no task can be named, because the function moves rows
from task to task, halves of the pieces are tried.

A failure that no single record shows (the pieces pass, the whole does not) is blamed on no record, and ends the search.
"""

from collections.abc import Collection, Set
from typing import Final, NamedTuple, Protocol

PIECES: Final = 32
PIECE_BITS: Final = 5
_ALL: Final = frozenset(range(PIECES))


class Origin(NamedTuple):
    """A record's address."""

    topic: str
    partition: int
    offset: int

    def __str__(self) -> str:
        return f"{self.topic}/{self.partition}@{self.offset}"


class Region(NamedTuple):
    """The records the hash of whose address ends with these bits. Without bits: all."""

    bits: int = 0
    value: int = 0

    def piece(self, number: int) -> "Region":
        return Region(self.bits + PIECE_BITS, self.value | number << self.bits)


class Failed(NamedTuple):
    """The outcome of a try that failed."""

    pieces: Set[int] = frozenset()
    """Pieces that failed; none if that cannot be told."""
    passed: Set[int] = frozenset()
    """Pieces that are known to pass."""


class Probes(Protocol):
    def apart(self, region: Region, pieces: Set[int], without: Collection[Origin]) -> Failed | None:
        """Tries these pieces of a region, each in a task of its own, without some records. Returns None if all pass."""
        ...

    def records(self, region: Region) -> Collection[Origin]:
        """The records of a region that has only a few."""
        ...

    def alone(self, record: Origin) -> str | None:
        """Tries one record alone. Returns the error, or None."""
        ...


def find_poison(count: int, probes: Probes, limit: int) -> dict[Origin, str]:
    """Finds the records that fail alone in a batch of so many records, with their errors. Ends once there are more than
    `limit`."""
    found: dict[Origin, str] = {}
    left: Set[int] = _ALL
    while left and len(found) <= limit:
        failed = probes.apart(Region(), left, found)
        if failed is None:
            break
        left -= failed.passed
        poison = _poison_in(Region(), left, failed, count, probes, found)
        if not poison:
            break
        found.update(poison)
    return found


def _poison_in(
    region: Region, pieces: Set[int], failed: Failed, count: int, probes: Probes, without: Collection[Origin]
) -> dict[Origin, str]:
    """The records of one piece, among these of a region, that fail alone."""
    while True:
        region = region.piece(_one_that_fails(region, pieces, failed, probes, without))
        if count >> region.bits <= 1:  # there is about one record in it
            alone = {record: probes.alone(record) for record in probes.records(region) if record not in without}
            return {record: error for record, error in alone.items() if error is not None}
        again = probes.apart(region, _ALL, without)
        if again is None:
            return {}
        pieces, failed = _ALL - again.passed, again


def _one_that_fails(
    region: Region, pieces: Set[int], failed: Failed, probes: Probes, without: Collection[Origin]
) -> int:
    while len(pieces) > 1 and not pieces & failed.pieces:
        first = frozenset(sorted(pieces)[: len(pieces) // 2])
        again = probes.apart(region, first, without)
        # If these pass, the failure is in the others, or in no single record, which the search of the others shows.
        pieces, failed = (pieces - first, Failed()) if again is None else (first, again)
    return min(pieces & failed.pieces or pieces)
