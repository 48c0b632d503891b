"""The work of one Spark task, and the reader that travels to it.

This module imports little: planners, which Spark starts often, import it and never read. The first task of a worker
process imports what reading needs.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import pyarrow as pa
from pyspark.sql.datasource import InputPartition

from cordwood.model.identifiers import TopicId
from cordwood.spark.source.options import SourceOptions
from cordwood.spark.source.planning import Task


@dataclass
class ReadTask(InputPartition):
    """The work of one Spark task."""

    ranges: Task = ()
    topic_ids: Mapping[str, TopicId] = field(default_factory=dict)
    """Ids of the topics that the offsets belong to, if the planner knows them: a topic that was created again has
    another id."""
    box: str | None = None
    """The group for notes to the planner; None: no notes."""
    introduces: bool = False
    """True if this task tells the planner the query's name."""

    @classmethod
    def of(
        cls, ranges: Task, topic_ids: Mapping[str, TopicId], box: str | None = None, *, introduces: bool = False
    ) -> "ReadTask":
        """A task with the ids of its topics, taken from all known ids."""
        topics = {wanted.partition.topic for wanted in ranges}
        return cls(ranges, {name: topic_ids[name] for name in sorted(topics & topic_ids.keys())}, box, introduces)


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
