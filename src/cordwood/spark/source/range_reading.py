"""The read of one task, in batch and stream: offset ranges in, Arrow batches out.

Runs on executors. Promises every record of its ranges, in offset order within each partition, once. Missing records are
an error that names them, or, with failOnDataLoss=false, are logged and reported, and the rest is read.
"""

import logging
from collections.abc import Iterator, Mapping

import pyarrow as pa

from cordwood.client.answers import Fetched, Isolation, TopicMetadata
from cordwood.client.errors import EndNotReached, OffsetOutOfRange, UnknownTopic
from cordwood.client.streaming import OffsetRange as StreamedRange
from cordwood.columnar.decoding import Decoder
from cordwood.records.corruption import CorruptRecords
from cordwood.spark.source import notes
from cordwood.spark.source.assembling import Assembler
from cordwood.spark.source.data_loss import Cause, DataLoss, Loss, advise, explain
from cordwood.spark.source.planning import OffsetRange, Reading, ReadTask
from cordwood.spark.workers.state import cluster_of, freeze_once

_log = logging.getLogger(__name__)


class RangeReader:
    def __init__(self, reading: Reading, task: ReadTask) -> None:
        self._options = reading.options
        self._task = task
        self._cluster = cluster_of(reading.options.fetching)
        self._assembler = Assembler(
            reading.schema, min_timestamp_us=reading.min_timestamp_us, max_timestamp_us=reading.max_timestamp_us
        )
        names = reading.schema.names
        self._decoder = Decoder(
            headers="headers" in names,
            key="key" in names,
            value="value" in names,
            origin="control" in reading.options.extra_columns,
        )

    def read(self) -> Iterator[pa.RecordBatch]:
        task = self._task
        if task.introduces and task.box is not None and task.ranges:
            notes.introduce(self._cluster, task.box, task.ranges[0].partition, notes.run_of_task())
        # The metadata are fetched again: a topic that this process knew may have been deleted and created again.
        topics = self._cluster.topics({wanted.partition.topic for wanted in task.ranges})
        ranges = [wanted for wanted in task.ranges if self._is_there(wanted, topics)]
        streams = self._cluster.streams(
            [StreamedRange(wanted.partition, wanted.start, wanted.end) for wanted in ranges],
            isolation=self._options.isolation,
        )
        for wanted, stream in zip(ranges, streams, strict=True):
            yield from self._read_range(wanted, stream)
        yield from self._assembler.finish()
        freeze_once()

    def _is_there(self, wanted: OffsetRange, topics: Mapping[str, TopicMetadata]) -> bool:
        found = topics.get(wanted.partition.topic)
        planned = self._task.topic_ids.get(wanted.partition.topic)
        if found is None:
            cause = Cause.TOPIC_GONE
        elif planned is not None and found.topic_id is not None and found.topic_id != planned:
            cause = Cause.RECREATED
        else:
            return True
        self._lose(Loss(wanted.partition, wanted.start, wanted.end, cause))
        return False

    def _read_range(self, wanted: OffsetRange, stream: Iterator[Fetched]) -> Iterator[pa.RecordBatch]:
        isolation = self._options.isolation
        position = wanted.start
        while position < wanted.end:
            try:
                for fetched in stream:
                    for columns in self._decoder.decode(
                        fetched.records,
                        start_offset=position,
                        end_offset=wanted.end,
                        aborted=fetched.aborted,
                        read_committed=isolation is Isolation.READ_COMMITTED,
                    ):
                        yield from self._assembler.add(columns, wanted.partition)
                    position = fetched.next_offset
                return
            except OffsetOutOfRange as gone:
                position = self._go_on_after(wanted, position, gone)
                stream = self._cluster.stream(wanted.partition, position, wanted.end, isolation=isolation)
            except EndNotReached as short:
                if short.log_end_offset >= wanted.end:
                    raise  # a transaction is open, or the broker's answer is odd: nothing is lost
                self._lose(Loss(wanted.partition, position, wanted.end, Cause.ENDS_EARLIER, None, short.log_end_offset))
                return
            except UnknownTopic:
                self._lose(Loss(wanted.partition, position, wanted.end, Cause.TOPIC_GONE))
                return
            except CorruptRecords as damage:
                raise CorruptRecords(
                    f"{wanted.partition} cannot be read: {damage}. These bytes are not what was written; "
                    "no row of them was given out. A query that starts behind these offsets reads the rest"
                ) from damage

    def _go_on_after(self, wanted: OffsetRange, position: int, gone: OffsetOutOfRange) -> int:
        """Reports the missing records, and returns the offset to read on from."""
        begins = gone.log_start_offset
        if begins > position:
            lost_end = min(begins, wanted.end)
            if not (wanted.is_new and position == wanted.start):
                self._lose(Loss(wanted.partition, position, lost_end, Cause.REMOVED, begins, None))
            return lost_end
        self._lose(Loss(wanted.partition, position, wanted.end, Cause.ENDS_EARLIER, begins, gone.log_end_offset))
        return wanted.end

    def _lose(self, loss: Loss) -> None:
        text = explain(self._cluster, [loss])
        if self._options.fail_on_data_loss:
            raise DataLoss(f"Records were lost while they were about to be read.\n{text}\n{advise([loss])}")
        _log.warning("data loss (failOnDataLoss=false): %s", text)
        if self._task.box is not None and loss.end is not None:
            run = notes.run_of_task()
            notes.report_loss(self._cluster, self._task.box, loss.partition, loss.start, loss.end, run)
