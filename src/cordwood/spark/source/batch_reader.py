"""`spark.read.format("cordwood")`: Spark's side of a batch read."""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from cordwood.spark.options.task_log_in import for_tasks
from cordwood.spark.source.batch_planner import cores, plan_batch
from cordwood.spark.source.options import SourceOptions
from cordwood.spark.source.planning import Reading, ReadTask, plan_tasks
from cordwood.spark.source.pushed_filters import PushedFilters
from cordwood.spark.source.schema import arrow_schema

if TYPE_CHECKING:
    from pyspark.sql.datasource import Filter


class BatchReader(DataSourceReader):
    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        self._options = options
        self._reading = Reading(options, arrow_schema(schema))
        self._pushed = PushedFilters()

    def __getstate__(self) -> dict[str, Any]:
        """For tasks, which alone get a pickled reader: it has a token in place of the password, if there are tokens."""
        options = self._options.logging_in(for_tasks(self._options.client).security)
        return {**self.__dict__, "_options": options, "_reading": replace(self._reading, options=options)}

    def partitions(self) -> list[InputPartition]:
        ranges, topic_ids = plan_batch(self._options, self._pushed)
        tasks = [ReadTask.of(task, topic_ids) for task in plan_tasks(ranges, self._options.task_sizes, cores())]
        # Spark reads an empty list as one partition without a value.
        return [*tasks] or [ReadTask()]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, ReadTask)
        # Imported here: planners, which Spark starts often, never read.
        from cordwood.spark.source.range_reading import RangeReader

        return RangeReader(self._reading, partition).read()


class FilteringBatchReader(BatchReader):
    """A reader with filter pushdown. Spark refuses a reader that has `pushFilters` if pushdown is off."""

    def pushFilters(self, filters: "list[Filter]") -> "Iterable[Filter]":
        # Imported here: PySpark 4.0 has no filters.
        from cordwood.spark.source.pushdown import push

        self._pushed = push(filters)
        self._reading = replace(
            self._reading,
            min_timestamp_us=self._pushed.min_timestamp_us,
            max_timestamp_us=self._pushed.max_timestamp_us,
        )
        return self._pushed.left_to_spark
