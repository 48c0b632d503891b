"""Spark's side of a batch write: `df.write.format("cordwood")`.

Options and columns are checked here, on the driver, for every write; nothing heavier is imported before a task has
rows. Spark calls `write` in a worker for every attempt of a task, then `commit` or `abort` in another process on the
driver.
"""

import logging
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType

from cordwood.spark.options.task_log_in import for_tasks
from cordwood.spark.sink.columns import SinkColumns, check_columns
from cordwood.spark.sink.options import SinkOptionError, SinkOptions, parse_sink_options
from cordwood.spark.sink.protocol import TaskReport

_log = logging.getLogger("cordwood.spark.sink")
_warned: set[str] = set()


def batch_writer(options: Mapping[str, str], schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
    if overwrite:
        raise SinkOptionError(
            "A topic cannot be overwritten, records are only ever appended: write with mode('append'), or create a "
            "fresh topic and write to that"
        )
    parsed = parse_sink_options(options, streaming=False)
    warn(parsed)
    return BatchSink(parsed, check_columns(schema, parsed))


class BatchSink(DataSourceArrowWriter):
    """One write job. It is pickled once on the driver, so that tasks and commit share its name."""

    def __init__(self, options: SinkOptions, columns: SinkColumns) -> None:
        self._options = options
        self._columns = columns
        self._numbered = options.batch_id is not None
        self._batch_id = options.batch_id or 0
        job = uuid.uuid4().hex
        self._family = options.family if self._numbered else f"{options.family or 'batch'}.{job}"

    def __getstate__(self) -> dict[str, Any]:
        """For tasks and the commit: a token takes the place of the password, if there are tokens."""
        return {**self.__dict__, "_options": options_for_tasks(self._options)}

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

        commit_batch(self._options, reports(messages), self._batch_id, forget=not self._numbered)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        from cordwood.spark.sink.commits import abort_batch

        abort_batch(self._options, reports(messages), self._batch_id, forget=not self._numbered, family=self._family)


def options_for_tasks(options: SinkOptions) -> SinkOptions:
    return replace(options, client=for_tasks(options.client))


def warn(options: SinkOptions) -> None:
    """Warns once in the life of this process: Spark makes a writer for every micro-batch."""
    for warning in options.warnings:
        if warning not in _warned:
            _warned.add(warning)
            _log.warning("%s", warning)


def reports(messages: list[WriterCommitMessage | None]) -> list[TaskReport | None]:
    for message in messages:
        assert message is None or isinstance(message, TaskReport)
    return [message for message in messages if isinstance(message, TaskReport)]
