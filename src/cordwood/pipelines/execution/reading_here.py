"""Reads the committed records of a small topic in this process, with the source's own reader: no Java is started."""

from collections.abc import Collection, Iterator, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pyarrow as pa

_EXTRA = ("headers",)


def committed_records(topic: str, bootstrap_servers: str, columns: Collection[str]) -> "Iterator[pa.RecordBatch]":
    """The committed records of a topic, with columns of the source's schema."""
    from cordwood.spark.source.batch_planner import plan_batch
    from cordwood.spark.source.options import read_options
    from cordwood.spark.source.planning import ReadTask
    from cordwood.spark.source.pushdown import PushedFilters
    from cordwood.spark.source.range_reading import RangeReader
    from cordwood.spark.source.reading import TaskReader
    from cordwood.spark.source.schema import arrow_schema, source_schema

    given = {
        "kafka.bootstrap.servers": bootstrap_servers,
        "kafka.isolation.level": "read_committed",
        "subscribe": topic,
        "includeHeaders": "true" if "headers" in columns else "false",
    }
    options = read_options(given, streaming=False)
    schema = arrow_schema(source_schema([name for name in _EXTRA if name in columns]))
    reader = TaskReader(options, _only(schema, columns))
    yield from RangeReader(reader, ReadTask(tuple(plan_batch(options, PushedFilters()).ranges))).read()


def _only(schema: "pa.Schema", columns: Collection[str]) -> "pa.Schema":
    import pyarrow as pa

    wanted: Sequence[Any] = [field for field in schema if field.name in columns]
    return pa.schema(wanted)
