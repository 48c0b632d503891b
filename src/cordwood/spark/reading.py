"""The read of one task: offset ranges in, Arrow batches out. The same for batch and stream.

Runs on executors. Promises every record of its ranges, in offset order within each partition, once. Records that are
gone are an error that says which, or, with failOnDataLoss=false, are logged and reported, and the rest is read.
"""

import logging
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import pyarrow as pa
from pyspark.sql.datasource import InputPartition

from cordwood.client.answers import Isolation, TopicMetadata
from cordwood.client.cluster import Cluster
from cordwood.client.errors import OffsetOutOfRange, UnknownTopic
from cordwood.columnar.decoding import Decoder
from cordwood.model.identifiers import TopicId
from cordwood.spark import notes
from cordwood.spark.assembling import Assembler
from cordwood.spark.data_loss import Cause, DataLoss, Loss
from cordwood.spark.explaining import advise, explain
from cordwood.spark.options import SourceOptions
from cordwood.spark.planning import OffsetRange, Task
from cordwood.spark.worker_state import cluster_of, freeze_once

_log = logging.getLogger(__name__)


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
        cluster = cluster_of(self.options.fetching)
        if task.introduces and task.box is not None and task.ranges:
            notes.introduce(cluster, task.box, task.ranges[0].partition)
        assembler = Assembler(
            self.schema, min_timestamp_us=self.min_timestamp_us, max_timestamp_us=self.max_timestamp_us
        )
        # Fresh metadata: this process may have known a topic that was deleted and created again since.
        topics = cluster.topics({wanted.partition.topic for wanted in task.ranges})
        for wanted in task.ranges:
            if self._is_there(cluster, wanted, topics, task):
                yield from self._read_range(cluster, wanted, assembler, task.box)
        yield from assembler.finish()
        freeze_once()

    def _is_there(
        self, cluster: Cluster, wanted: OffsetRange, topics: Mapping[str, TopicMetadata], task: ReadTask
    ) -> bool:
        found = topics.get(wanted.partition.topic)
        planned = task.topic_ids.get(wanted.partition.topic)
        if found is None:
            cause = Cause.TOPIC_GONE
        elif planned is not None and found.topic_id is not None and found.topic_id != planned:
            cause = Cause.RECREATED
        else:
            return True
        self._lose(cluster, Loss(wanted.partition, wanted.start, wanted.end, cause), task.box)
        return False

    def _read_range(
        self, cluster: Cluster, wanted: OffsetRange, assembler: Assembler, box: str | None
    ) -> Iterator[pa.RecordBatch]:
        names = self.schema.names
        decoder = Decoder(
            headers="headers" in names,
            key="key" in names,
            value="value" in names,
            origin="control" in self.options.extra_columns,
        )
        committed = self.options.isolation is Isolation.READ_COMMITTED
        position = wanted.start
        while position < wanted.end:
            try:
                for fetched in cluster.stream(wanted.partition, position, wanted.end, isolation=self.options.isolation):
                    for columns in decoder.decode(
                        fetched.records,
                        start_offset=position,
                        end_offset=wanted.end,
                        aborted=fetched.aborted,
                        read_committed=committed,
                    ):
                        yield from assembler.add(columns, wanted.partition)
                    position = fetched.next_offset
                return
            except OffsetOutOfRange as gone:
                position = self._go_on_after(cluster, wanted, position, gone, box)
            except UnknownTopic:
                self._lose(cluster, Loss(wanted.partition, position, wanted.end, Cause.TOPIC_GONE), box)
                return

    def _go_on_after(
        self, cluster: Cluster, wanted: OffsetRange, position: int, gone: OffsetOutOfRange, box: str | None
    ) -> int:
        """Where to read on, having said what is missing."""
        begins = gone.log_start_offset
        if begins > position:
            lost_end = min(begins, wanted.end)
            if not (wanted.is_new and position == wanted.start):
                self._lose(cluster, Loss(wanted.partition, position, lost_end, Cause.REMOVED, begins, None), box)
            return lost_end
        loss = Loss(wanted.partition, position, wanted.end, Cause.ENDS_EARLIER, begins, gone.log_end_offset)
        self._lose(cluster, loss, box)
        return wanted.end

    def _lose(self, cluster: Cluster, loss: Loss, box: str | None) -> None:
        text = explain(cluster, [loss], int(time.time() * 1000))
        if self.options.fail_on_data_loss:
            raise DataLoss(f"Records were lost while they were about to be read.\n{text}\n{advise([loss])}")
        _log.warning("data loss (failOnDataLoss=false): %s", text)
        if box is not None and loss.end is not None:
            notes.report_loss(cluster, box, loss.partition, loss.start, loss.end)
