"""Spans of offsets and the rows that were made from records within them."""

from collections.abc import Sequence
from itertools import zip_longest
from typing import TYPE_CHECKING, NamedTuple

from cordwood.pipelines.definition.definition import RECORD

if TYPE_CHECKING:
    from pyspark.sql import Column


class Span(NamedTuple):
    """A range of offsets of one partition, without its end. Offsets within it may have no record."""

    topic: str
    partition: int
    start: int
    end: int


def within(spans: Sequence[Span], address: str = f"{RECORD}.") -> "Column":
    """Selects rows whose record is in one of the spans. The record's place is in the columns `<address>topic`,
    `<address>partition` and `<address>offset`."""
    from pyspark.sql import functions as F

    conditions = [
        (F.col(f"{address}topic") == span.topic)
        & (F.col(f"{address}partition") == span.partition)
        & (F.col(f"{address}offset") >= span.start)
        & (F.col(f"{address}offset") < span.end)
        for span in spans
    ]
    # The condition is a balanced tree: Spark walks it by recursion, and a topic may have a thousand partitions.
    while len(conditions) > 1:
        pairs = zip_longest(conditions[::2], conditions[1::2], fillvalue=F.lit(False))
        conditions = [one | two for one, two in pairs]
    return conditions[0] if conditions else F.lit(False)
