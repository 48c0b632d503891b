"""A streaming query that collects its values in this process, for as long as a test needs it."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter
from tests.deadline import eventually

WITHIN_S = 300


class Running:
    """A query, and the values that this run of it has read."""

    query: StreamingQuery

    def __init__(self) -> None:
        self._values: list[int] = []

    def take(self, batch: DataFrame, _: int) -> None:
        self._values += [int(bytes(row["value"])) for row in batch.select("value").collect()]

    def values(self) -> list[int]:
        """The values so far, as numbers, sorted."""
        assert self.query.exception() is None, self.query.exception()
        return sorted(self._values)

    def await_values(self, expected: list[int]) -> None:
        """Waits for as many values as expected, and compares them."""
        eventually(lambda: len(self.values()) >= len(expected), within_s=WITHIN_S, what=f"{len(expected)} records")
        assert self.values() == expected

    def finish(self) -> None:
        """Waits for a query that ends by itself; raises its failure."""
        assert self.query.awaitTermination(WITHIN_S), "the query did not end"


@contextmanager
def running(frame: DataFrame, name: str, checkpoint: Path, **trigger: Any) -> Iterator[Running]:
    """Runs the query until the end of the block."""
    stream = Running()
    writer = frame.writeStream.queryName(name).foreachBatch(stream.take).option("checkpointLocation", str(checkpoint))
    if trigger:
        writer = writer.trigger(**trigger)
    stream.query = begun(writer)
    try:
        yield stream
    finally:
        stream.query.stop()


def begun(writer: DataStreamWriter) -> StreamingQuery:
    """A query that has begun to ask its source.

    Spark gives the source's Python process ten seconds to report, and no setting changes that. On a busy machine ten
    seconds are sometimes too short, which says nothing about the source: the query is started again.
    """
    while True:
        query = writer.start()
        eventually(partial(_is_past_the_start, query), within_s=WITHIN_S, what="the start of a query")
        failure = query.exception()
        if failure is None or "Python worker failed to connect" not in str(failure):
            return query


def _is_past_the_start(query: StreamingQuery) -> bool:
    return not query.isActive or bool(query.recentProgress) or "nitializing" not in query.status["message"]
