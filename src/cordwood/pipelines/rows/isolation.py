"""Finds the records that a function fails on, by halving: any failure of any function, with no help from it.

The batch failed as a whole. Half of it is tried, then the other half, down to single records that fail alone. A search
costs a few tries for each poison record, so the number of allowed poison records bounds it. A failure that no single
record shows (the halves pass, the whole does not) is blamed on no record.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple


class Origin(NamedTuple):
    """A record's address."""

    topic: str
    partition: int
    offset: int

    def __str__(self) -> str:
        return f"{self.topic}/{self.partition}@{self.offset}"


class Span(NamedTuple):
    """A range of offsets of one partition, without its end. Offsets within it may have no record."""

    topic: str
    partition: int
    start: int
    end: int


Probe = Callable[[Sequence[Span]], "str | None"]
"""Tries the records of these spans alone. Returns the error, or None."""


def find_poison(spans: Sequence[Span], probe: Probe, limit: int) -> dict[Origin, str]:
    """Finds the records of a failed batch that fail alone, with their errors. Ends once there are more than `limit`."""
    found: dict[Origin, str] = {}
    failed: list[list[Span]] = [[span for span in spans if span.end > span.start]]
    while failed and len(found) <= limit:
        suspects = failed.pop()
        size = _size(suspects)
        if size == 0:
            continue
        if size == 1:
            (topic, partition, offset, _), *_ = suspects
            error = probe(suspects)
            if error is not None:
                found[Origin(topic, partition, offset)] = error
            continue
        first, second = _halves(suspects, size // 2)
        if probe(first) is None:
            # The failure is then in the other half, or in no single record, which the search of that half will show.
            failed.append(second)
            continue
        if probe(second) is not None:
            failed.append(second)
        failed.append(first)
    return found


def _size(spans: Sequence[Span]) -> int:
    return sum(span.end - span.start for span in spans)


def _halves(spans: Sequence[Span], first_size: int) -> tuple[list[Span], list[Span]]:
    first: list[Span] = []
    second: list[Span] = []
    left = first_size
    for span in spans:
        cut = min(span.start + left, span.end)
        if cut > span.start:
            first.append(span._replace(end=cut))
        if span.end > cut:
            second.append(span._replace(start=cut))
        left -= cut - span.start
    return first, second
