"""What one Spark task reads, and the reader that travels to it.

Light: planners, which Spark starts often, import this and never read. What it takes to read is imported by the first
task of a worker process.
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
    """What one Spark task reads."""

    ranges: Task = ()
    topic_ids: Mapping[str, TopicId] = field(default_factory=dict)
    """The topics that the offsets belong to, where the planner knows: another topic of the same name is another."""
    box: str | None = None
    """Where notes to the planner go; None: nowhere."""
    introduces: bool = False
    """This task tells the planner for whom it works."""

    @classmethod
    def of(
        cls, ranges: Task, topic_ids: Mapping[str, TopicId], box: str | None = None, *, introduces: bool = False
    ) -> "ReadTask":
        """With the ids of the topics that it reads, out of all that are known."""
        topics = {wanted.partition.topic for wanted in ranges}
        return cls(ranges, {name: topic_ids[name] for name in sorted(topics & topic_ids.keys())}, box, introduces)


@dataclass(frozen=True)
class TaskReader:
    """Everything that the tasks of a read have in common. Travels pickled."""

    options: SourceOptions
    schema: pa.Schema
    min_timestamp_us: int | None = None
    max_timestamp_us: int | None = None

    def read(self, task: ReadTask) -> Iterator[pa.RecordBatch]:
        from cordwood.spark.source.range_reading import RangeReader

        return RangeReader(self, task).read()
