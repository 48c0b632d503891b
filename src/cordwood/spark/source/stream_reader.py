"""`spark.readStream.format("cordwood")`: Spark's side of a stream.

One object lives in the planner process and plans; pickled copies of it live in executors and read.
"""

import logging
import signal
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from cordwood.security.connection_settings import PLAIN_TEXT
from cordwood.spark.options.task_log_in import for_tasks
from cordwood.spark.source.batch_planner import cores
from cordwood.spark.source.offsets import SparkOffset, beginning_in, from_spark, to_spark, with_beginning
from cordwood.spark.source.options import SourceOptions
from cordwood.spark.source.planning import Reading, ReadTask, plan_tasks
from cordwood.spark.source.schema import arrow_schema
from cordwood.spark.source.stream_planner import StreamPlanner
from cordwood.spark.workers.planner import is_planner

if TYPE_CHECKING:
    import pyarrow as pa

_log = logging.getLogger(__name__)


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        self._options = options
        self._schema = schema
        self._planner_of_this_process: StreamPlanner | None = None

    def __getstate__(self) -> dict[str, Any]:
        """For tasks, which alone get a pickled reader: each brings its own log-in."""
        return {**self.__dict__, "_planner_of_this_process": None, "_options": self._options.logging_in(PLAIN_TEXT)}

    @property
    def _planner(self) -> StreamPlanner:
        if self._planner_of_this_process is None:
            self._planner_of_this_process = StreamPlanner(self._options)
            _end_in_order(self._planner_of_this_process)
            for warning in self._options.warnings:
                _log.warning("%s", warning)
        return self._planner_of_this_process

    # In the planner process

    def initialOffset(self) -> SparkOffset:
        return to_spark(self._planner.initial())

    def prepareForTriggerAvailableNow(self) -> None:
        self._planner.fix_end()

    def getDefaultReadLimit(self) -> ReadLimit:
        # Spark takes one limit; it stands for all limits of the options.
        limits = self._options.limits
        if limits.max_offsets is not None:
            return ReadMaxRows(limits.max_offsets)
        if limits.max_bytes is not None:
            return ReadMaxBytes(limits.max_bytes)
        if limits.min_offsets is not None:
            return ReadMinRows(limits.min_offsets)
        return ReadAllAvailable()

    def latestOffset(self, start: SparkOffset, limit: ReadLimit) -> SparkOffset:
        limited = not isinstance(limit, ReadAllAvailable)
        known = from_spark(start)
        end = self._planner.latest(known, limited=limited)
        if end == known:
            return start  # the text as it came: Spark takes another text for something new
        return with_beginning(known, end) if known == self._planner.began else to_spark(end)

    def reportLatestOffset(self) -> SparkOffset | None:
        return to_spark(self._planner.last_seen) or None

    def partitions(self, start: SparkOffset, end: SparkOffset) -> Sequence[InputPartition]:
        planner = self._planner
        # `start` of the first batch is the present answer of initialOffset, which may differ from the one at its
        # planning.
        ranges = [] if start == end else planner.ranges(beginning_in(end) or from_spark(start), from_spark(end))
        planned = plan_tasks(ranges, self._options.task_sizes, cores())
        box, introduces = planner.box_for_tasks()
        tasks = [
            ReadTask.of(task, planner.topic_ids, box, introduces=introduces and index == 0)
            for index, task in enumerate(planned)
        ]
        security = for_tasks(self._options.client).security if tasks else PLAIN_TEXT
        return [replace(task, security=security) for task in tasks]

    def commit(self, end: SparkOffset) -> None:
        """Does nothing: Spark calls this late or never. Progress is the start that `latestOffset` gets."""

    def stop(self) -> None:
        if self._planner_of_this_process is not None:
            self._planner_of_this_process.close()

    # In executors

    def read(self, partition: InputPartition) -> "Iterator[pa.RecordBatch]":
        assert isinstance(partition, ReadTask)
        # Imported here: planners, which Spark starts often, never read.
        from cordwood.spark.source.range_reading import RangeReader

        options = self._options.logging_in(partition.security)
        return RangeReader(Reading(options, arrow_schema(self._schema)), partition).read()


def _end_in_order(planner: StreamPlanner) -> None:
    """Closes the planner when Spark ends its process, which Spark does with SIGTERM, twice within milliseconds.

    The second signal would interrupt the work of the first, and either would interrupt a `stop` that the closed
    connection began: the first signal closes the planner completely, and the second is ignored.
    """

    def end(number: int, frame: object) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        planner.close()
        sys.exit(0)

    if is_planner():
        signal.signal(signal.SIGTERM, end)
