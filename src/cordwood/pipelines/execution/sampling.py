"""A few records of a pipeline's inputs, read in this process: no group, no offset and no checkpoint is left behind."""

from collections import deque
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final

from cordwood.client.bootstrap import Bootstrap
from cordwood.pipelines.definition.definition import Pipeline
from cordwood.pipelines.definition.starting import starting_options
from cordwood.pipelines.execution.reading_here import log_ends
from cordwood.spark.options.security import connection_options

if TYPE_CHECKING:
    import pyarrow as pa

    from cordwood.spark.source.options import SourceOptions
    from cordwood.spark.source.planning import OffsetRange


_FURTHEST: Final = 1_000_000
"""How many offsets of a partition are read for its last records, however few of them are committed."""


def sample(pipeline: Pipeline, bootstrap: Bootstrap, *, starting: str, records: int) -> "pa.Table":
    """Committed records of all inputs from `starting` on, at most about `records`, with the columns of Spark's source.

    Each partition gives an equal share, so that none hides behind a longer one. `latest` means the last records, for
    which the log is read from further and further back: offsets of aborted records, of markers and of what compaction
    has removed give none.
    """
    import pyarrow as pa

    from cordwood.spark.source.batch_planner import plan_batch
    from cordwood.spark.source.options import read_options
    from cordwood.spark.source.pushed_filters import PushedFilters
    from cordwood.spark.source.schema import arrow_schema, source_schema

    topics = sorted(topic.name for topic in pipeline.inputs.values())
    ends = log_ends(bootstrap, topics)
    share = max(1, -(-records // max(1, sum(len(each) for each in ends.values()))))
    common = {
        **connection_options(bootstrap),
        "kafka.isolation.level": "read_committed",
        "includeHeaders": "true",
        "subscribe": ",".join(topics),
        # What retention has removed is not there to be tried.
        "failOnDataLoss": "false",
    }
    schema = arrow_schema(source_schema(["headers"]))
    is_latest = starting == "latest"
    beginning = {"startingOffsets": "earliest"} if is_latest else starting_options(starting)
    read = read_options({**common, **beginning}, streaming=False)
    found: list[pa.RecordBatch] = []
    for wanted in plan_batch(read, PushedFilters()).ranges:
        if wanted.size > 0:
            found += _last(read, schema, wanted, share) if is_latest else _first(_read(read, schema, wanted), share)
    return pa.Table.from_batches(found, schema)


def _read(options: "SourceOptions", schema: "pa.Schema", wanted: "OffsetRange") -> "Iterator[pa.RecordBatch]":
    from cordwood.spark.source.planning import Reading, ReadTask
    from cordwood.spark.source.range_reading import RangeReader

    return RangeReader(Reading(options, schema), ReadTask((wanted,))).read()


def _last(
    options: "SourceOptions", schema: "pa.Schema", wanted: "OffsetRange", records: int
) -> "Sequence[pa.RecordBatch]":
    """The last records of a range. Each step goes back twice as far as the one before."""
    found: list[pa.RecordBatch] = []
    first = max(wanted.start, wanted.end - _FURTHEST)
    end, step = wanted.end, records
    while end > first and (left := records - sum(batch.num_rows for batch in found)) > 0:
        start = max(first, end - step)
        newest: deque[pa.RecordBatch] = deque()
        for batch in _read(options, schema, wanted._replace(start=start, end=end)):
            newest.append(batch)
            while sum(each.num_rows for each in newest) - newest[0].num_rows >= left:
                newest.popleft()
        surplus = max(0, sum(each.num_rows for each in newest) - left)
        found = [*([newest[0].slice(surplus)] if newest else []), *list(newest)[1:], *found]
        end, step = start, 2 * step
    return found


def _first(batches: "Iterator[pa.RecordBatch]", records: int) -> "Sequence[pa.RecordBatch]":
    """The first records, and no more than that is read."""
    found: list[pa.RecordBatch] = []
    left = records
    for batch in batches:
        found.append(batch.slice(0, left))
        left -= found[-1].num_rows
        if left <= 0:
            break
    return found
