"""Spark's side of a write: `df.write.format("cordwood")` and `df.writeStream.format("cordwood")`.

Options and columns are checked here, on the driver, for every write; nothing heavier is imported before a task has
rows. Spark calls `write` in a worker for every attempt of a task, then `commit` or `abort` in another process on the
driver.
"""

import logging
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, Final

from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType

from cordwood.spark.checkpoints.owner import has_owner, local_directory, query_id_of
from cordwood.spark.sink.columns import SinkColumns, check_columns
from cordwood.spark.sink.options import SinkOptionError, SinkOptions, UnknownQuery, parse_sink_options
from cordwood.spark.sink.protocol import TaskReport

_log = logging.getLogger("cordwood.spark.sink")
_warned: set[str] = set()
_UNKNOWN_QUERY: Final = "unknownquery"

QUERY_ID = "sql.streaming.queryId"
BATCH_ID = "streaming.sql.batchId"
"""Local properties that Spark sets for the tasks of a micro-batch. The query's id is kept in its checkpoint."""


def batch_writer(options: Mapping[str, str], schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
    if overwrite:
        raise SinkOptionError(
            "A topic cannot be overwritten, records are only ever appended: write with mode('append'), or create a "
            "fresh topic and write to that"
        )
    parsed = parse_sink_options(options, streaming=False)
    _warn(parsed)
    return BatchSink(parsed, check_columns(schema, parsed))


def stream_writer(options: Mapping[str, str], schema: StructType, overwrite: bool) -> DataSourceStreamArrowWriter:
    """`overwrite` is Spark's word for outputMode("complete"): every micro-batch holds the whole result. Each is
    appended, as with Spark's Kafka sink."""
    parsed = parse_sink_options(options, streaming=True)
    _warn(parsed)
    if not any(name.lower() == _UNKNOWN_QUERY for name in options) and _wrote_elsewhere(parsed.checkpoint):
        parsed = replace(parsed, unknown_query=UnknownQuery.BEGIN)
    return StreamSink(parsed, check_columns(schema, parsed))


def _wrote_elsewhere(checkpoint: str | None) -> bool:
    """True if the checkpoint on this machine shows that this sink has never decided a batch of the query: the query is
    new, or used Spark's Kafka sink until now. The sink's witness is durable before its first decision, so a checkpoint
    without one has not lost it to a power cut."""
    directory = local_directory(checkpoint)
    return directory is not None and query_id_of(directory) is not None and not has_owner(directory)


class BatchSink(DataSourceArrowWriter):
    """One write job. It is pickled once on the driver, so that tasks and commit share its name."""

    def __init__(self, options: SinkOptions, columns: SinkColumns) -> None:
        self._options = options
        self._columns = columns
        self._numbered = options.batch_id is not None
        self._batch_id = options.batch_id or 0
        job = uuid.uuid4().hex
        self._family = options.family if self._numbered else f"{options.family or 'batch'}.{job}"

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        from cordwood.spark.sink.promises import WriteIdentity
        from cordwood.spark.sink.task import write_task

        context = TaskContext.get()
        assert context is not None
        assert self._family is not None
        identity = WriteIdentity(
            self._family, self._batch_id, context.partitionId(), context.attemptNumber(), repeatable=self._numbered
        )
        return write_task(self._options, self._columns, identity, iterator)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        from cordwood.spark.sink.commits import commit_batch

        commit_batch(self._options, _reports(messages), self._batch_id, forget=not self._numbered)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        from cordwood.spark.sink.commits import abort_batch

        abort_batch(self._options, _reports(messages), self._batch_id, forget=not self._numbered, family=self._family)


class StreamSink(DataSourceStreamArrowWriter):
    """One streaming query. Spark makes a new one for every micro-batch and another for its commit."""

    def __init__(self, options: SinkOptions, columns: SinkColumns) -> None:
        self._options = options
        self._columns = columns

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        from cordwood.spark.sink.promises import WriteIdentity
        from cordwood.spark.sink.task import write_task

        context = TaskContext.get()
        assert context is not None
        query_id, batch_id = context.getLocalProperty(QUERY_ID), context.getLocalProperty(BATCH_ID)
        assert query_id is not None, "Spark does not say which query this is"
        assert batch_id is not None, "Spark does not say which micro-batch this is"
        identity = WriteIdentity(
            self._family_of(query_id), int(batch_id), context.partitionId(), context.attemptNumber(), repeatable=True
        )
        return write_task(self._options, self._columns, identity, iterator)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        from cordwood.spark.sink.commits import commit_batch

        commit_batch(self._options, _reports(messages), batchId, forget=False)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        from cordwood.spark.sink.commits import abort_batch

        query_id = query_id_of(local_directory(self._options.checkpoint))
        family = None if query_id is None else self._family_of(query_id)
        abort_batch(self._options, _reports(messages), batchId, forget=False, family=family)

    def _family_of(self, query_id: str) -> str:
        return query_id if self._options.family is None else f"{self._options.family}.{query_id}"


def _warn(options: SinkOptions) -> None:
    """Warns once in the life of this process: Spark makes a writer for every micro-batch."""
    for warning in options.warnings:
        if warning not in _warned:
            _warned.add(warning)
            _log.warning("%s", warning)


def _reports(messages: list[WriterCommitMessage | None]) -> list[TaskReport | None]:
    for message in messages:
        assert message is None or isinstance(message, TaskReport)
    return [message for message in messages if isinstance(message, TaskReport)]
