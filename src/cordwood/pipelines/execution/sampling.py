"""A few records of a pipeline's inputs, read in this process: no group, no offset and no checkpoint is left behind."""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from cordwood.client.bootstrap import Bootstrap
from cordwood.pipelines.definition.definition import Pipeline
from cordwood.pipelines.definition.starting import starting_options
from cordwood.pipelines.editions.positions import to_json
from cordwood.pipelines.execution.reading_here import log_ends
from cordwood.spark.options.security import connection_options

if TYPE_CHECKING:
    import pyarrow as pa

    from cordwood.spark.source.options import SourceOptions
    from cordwood.spark.source.planning import OffsetRange


def sample(pipeline: Pipeline, bootstrap: Bootstrap, *, starting: str, records: int) -> "pa.Table":
    """Committed records of all inputs from `starting` on, at most about `records`, with the columns of Spark's source.

    Each partition gives an equal share, so that none hides behind a longer one. `latest` means the last records.
    """
    import pyarrow as pa

    from cordwood.spark.source.batch_planner import plan_batch
    from cordwood.spark.source.options import read_options
    from cordwood.spark.source.pushed_filters import PushedFilters
    from cordwood.spark.source.schema import arrow_schema, source_schema

    topics = sorted(topic.name for topic in pipeline.inputs.values())
    ends = log_ends(bootstrap, topics)
    share = max(1, -(-records // max(1, sum(len(each) for each in ends.values()))))
    options = {
        **connection_options(bootstrap),
        "kafka.isolation.level": "read_committed",
        "includeHeaders": "true",
        "subscribe": ",".join(topics),
        # What retention has removed is not there to be tried.
        "failOnDataLoss": "false",
        **_beginning(starting, ends, share),
    }
    read = read_options(options, streaming=False)
    schema = arrow_schema(source_schema(["headers"]))
    found: list[pa.RecordBatch] = []
    for wanted in plan_batch(read, PushedFilters()).ranges:
        if wanted.size > 0:
            found += _first(_read(read, schema, wanted), share)
    return pa.Table.from_batches(found, schema)


def _beginning(starting: str, ends: Mapping[str, Mapping[int, int]], share: int) -> Mapping[str, str]:
    if starting != "latest":
        return starting_options(starting)
    last = {topic: {index: max(0, end - share) for index, end in each.items()} for topic, each in ends.items()}
    return {"startingOffsets": json.dumps(to_json(last))}


def _read(options: "SourceOptions", schema: "pa.Schema", wanted: "OffsetRange") -> "Iterator[pa.RecordBatch]":
    from cordwood.spark.source.planning import Reading, ReadTask
    from cordwood.spark.source.range_reading import RangeReader

    return RangeReader(Reading(options, schema), ReadTask((wanted,))).read()


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
