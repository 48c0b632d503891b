"""The reader that travels to Spark's tasks.

This module imports little: planners, which Spark starts often, import it and never read. The first task of a worker
process imports what reading needs.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa

from cordwood.spark.source.options import SourceOptions
from cordwood.spark.source.planning import ReadTask


@dataclass(frozen=True)
class TaskReader:
    """Everything that the tasks of a read share. Travels pickled."""

    options: SourceOptions
    schema: pa.Schema
    min_timestamp_us: int | None = None
    max_timestamp_us: int | None = None

    def read(self, task: ReadTask) -> Iterator[pa.RecordBatch]:
        from cordwood.spark.source.range_reading import RangeReader

        return RangeReader(self, task).read()
