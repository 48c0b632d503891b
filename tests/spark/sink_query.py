"""A streaming query as its tasks and its driver see it, without Spark around them."""

import uuid
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pyarrow as pa
from tests.spark.sink_stories import committed, families, values

from cordwood.spark.sink.columns import SinkColumns
from cordwood.spark.sink.commits import abort_batch, commit_batch
from cordwood.spark.sink.options import SinkOptions, parse_sink_options
from cordwood.spark.sink.promises import WriteIdentity
from cordwood.spark.sink.protocol import TaskReport
from cordwood.spark.sink.task import write_task

COLUMNS = SinkColumns(value=0)


class Query:
    """One streaming query as its tasks and its driver see it."""

    def __init__(self, bootstrap: str, topic: str, **options: str) -> None:
        given = {"kafka.bootstrap.servers": bootstrap, "topic": topic, **options}
        self.options: SinkOptions = parse_sink_options(given, streaming=True)
        self.bootstrap = bootstrap
        self.topic = topic
        self.family = str(uuid.uuid4())

    def task(self, batch_id: int, task: int, rows: Iterator[Any] | list[str], attempt: int = 0) -> TaskReport:
        # Each attempt has a client of its own, as each runs in a process of its own.
        client = replace(self.options.client, client_id=f"{batch_id}-{task}-{attempt}-{uuid.uuid4()}")
        identity = WriteIdentity(self.family, batch_id, task, attempt, repeatable=True)
        batches = iter([batch_of(rows)]) if isinstance(rows, list) else rows
        return write_task(replace(self.options, client=client), COLUMNS, identity, batches)

    def commit(self, batch_id: int, *reports: TaskReport | None) -> None:
        commit_batch(self.options, reports, batch_id, forget=False)

    def abort(self, batch_id: int, *reports: TaskReport | None) -> None:
        abort_batch(self.options, reports, batch_id, forget=False)

    def visible(self) -> list[str]:
        return values(committed(self.bootstrap, self.topic))

    @property
    def open_slots(self) -> int:
        return families(self.bootstrap)[self.family].open_slots


def batch_of(rows: list[str]) -> Any:
    return pa.record_batch([pa.array(rows)], names=["value"])
