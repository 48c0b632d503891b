"""Spark's side of a stream's write: `df.writeStream.format("cordwood")`. PySpark 4.0, which has the base class of batch
writes, does not have that of these.
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, Final

from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from cordwood.spark.checkpoints.owner import has_owner, local_directory, query_id_of
from cordwood.spark.sink.columns import SinkColumns, check_columns
from cordwood.spark.sink.options import SinkOptions, UnknownQuery, parse_sink_options
from cordwood.spark.sink.writer import options_for_tasks, reports, warn

_UNKNOWN_QUERY: Final = "unknownquery"

QUERY_ID = "sql.streaming.queryId"
BATCH_ID = "streaming.sql.batchId"
"""Local properties that Spark sets for the tasks of a micro-batch. The query's id is kept in its checkpoint."""


def stream_writer(options: Mapping[str, str], schema: StructType, overwrite: bool) -> DataSourceStreamArrowWriter:
    """`overwrite` is Spark's word for outputMode("complete"): every micro-batch holds the whole result. Each is
    appended, as with Spark's Kafka sink."""
    parsed = parse_sink_options(options, streaming=True)
    warn(parsed)
    if not any(name.lower() == _UNKNOWN_QUERY for name in options) and _wrote_elsewhere(parsed.checkpoint):
        parsed = replace(parsed, unknown_query=UnknownQuery.BEGIN)
    return StreamSink(parsed, check_columns(schema, parsed))


def _wrote_elsewhere(checkpoint: str | None) -> bool:
    """True if the checkpoint on this machine shows that this sink has never decided a batch of the query: the query is
    new, or used Spark's Kafka sink until now. The sink's witness is durable before its first decision, so a checkpoint
    without one has not lost it to a power cut."""
    directory = local_directory(checkpoint)
    return directory is not None and query_id_of(directory) is not None and not has_owner(directory)


class StreamSink(DataSourceStreamArrowWriter):
    """One streaming query. Spark makes a new one for every micro-batch and another for its commit."""

    def __init__(self, options: SinkOptions, columns: SinkColumns) -> None:
        self._options = options
        self._columns = columns

    def __getstate__(self) -> dict[str, Any]:
        """For tasks and the commit: a token takes the place of the password, if there are tokens."""
        return {**self.__dict__, "_options": options_for_tasks(self._options)}

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

        commit_batch(self._options, reports(messages), batchId, forget=False)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        from cordwood.spark.sink.commits import abort_batch

        query_id = query_id_of(local_directory(self._options.checkpoint))
        family = None if query_id is None else self._family_of(query_id)
        abort_batch(self._options, reports(messages), batchId, forget=False, family=family)

    def _family_of(self, query_id: str) -> str:
        return query_id if self._options.family is None else f"{self._options.family}.{query_id}"
