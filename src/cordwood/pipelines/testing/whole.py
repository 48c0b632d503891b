"""A whole pipeline against a real broker, batch by batch, on a Spark that tests share.

A batch of a pipeline without state goes from the log to the outputs as in a run: transactions, tables by key,
quarantine. It is read by hand: no query, no edition and no checkpoint is made, which would take most of a test's time.
A stateful pipeline has its state in a query's checkpoint, so each of its batches is a run with `once`.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from uuid import uuid4

from confluent_kafka import KafkaError, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from cordwood.client.bootstrap import Bootstrap
from cordwood.pipelines.definition.definition import Pipeline, Topic
from cordwood.pipelines.definition.record_formats import Json
from cordwood.pipelines.definition.table_output import Table, TableFormat
from cordwood.pipelines.editions.events import Event
from cordwood.pipelines.editions.positions import Positions, to_json
from cordwood.pipelines.editions.project import Project
from cordwood.pipelines.execution.batches import Batches
from cordwood.pipelines.execution.checking_rules import check_rules
from cordwood.pipelines.execution.outputs import Outputs, Place
from cordwood.pipelines.execution.reading_here import committed_records, log_ends
from cordwood.pipelines.execution.running import start
from cordwood.pipelines.execution.topics import Written, ensure_topics
from cordwood.pipelines.execution.trial import SetAside, set_aside_of
from cordwood.pipelines.formats.table_formats import snapshot
from cordwood.pipelines.rows.rules import RuleCounts
from cordwood.pipelines.testing.given import Encoded, GivenRow, encoded
from cordwood.spark.options.security import connection_options

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_TIMEOUT_S: Final = 60.0


@dataclass(frozen=True)
class Batch:
    """The outcome of a batch."""

    rows_in: int
    rows_out: Mapping[str, int]
    quarantined: int = 0
    rules: RuleCounts = field(default_factory=dict)


class PipelineTest:
    """A pipeline under test. Its inputs are topics of this broker, made with `partitions` if they are missing. A
    secure broker is given by the settings of a client on librdkafka."""

    def __init__(
        self,
        pipeline: Pipeline,
        spark: "SparkSession",
        bootstrap_servers: str | Mapping[str, str],
        directory: Path,
        *,
        partitions: int = 1,
    ) -> None:
        self.pipeline = pipeline = _without_databases(pipeline)
        self._bootstrap = Bootstrap.of(bootstrap_servers)
        self.bootstrap_servers = self._bootstrap.servers
        self._spark = spark
        self._directory = directory
        self._producer = Producer({**self._bootstrap.for_librdkafka(), "linger.ms": 0})
        self._position: Positions = {}
        self._inputs = [topic.name for topic in pipeline.inputs.values()]
        _make_topics(self._bootstrap, self._inputs, partitions)
        self._batches: Batches | None = None
        self._batch_id = 0
        if not pipeline.settings.stateful:
            check_rules(pipeline, spark)
            topics = {topic.name: topic.name for topic in pipeline.topics.values()}
            written = [*map(Written, topics), Written(pipeline.quarantine_topic, is_quarantine=True)]
            ensure_topics(self._bootstrap, written, self._inputs)
            tables = {table.name: directory / "tables" / table.name for table in pipeline.tables.values()}
            place = Place(tables, topics, directory / "staging", self._bootstrap, "test")
            self._batches = Batches(pipeline, Outputs(pipeline, place, str(uuid4()), replaying=False))

    def produce(self, input: str, *rows: GivenRow) -> None:
        """Writes records to an input, named as the function's parameter, and returns when all are acknowledged."""
        if input not in self.pipeline.inputs:
            raise KeyError(f"{self.pipeline.name} has no input {input}: it has {', '.join(self.pipeline.inputs)}")
        failures: list[KafkaError] = []

        def delivered(error: KafkaError | None, _: object) -> None:
            if error is not None:
                failures.append(error)

        for each in encoded(self.pipeline.inputs[input], rows):
            self._producer.produce(on_delivery=delivered, **_arguments(each))
        if self._producer.flush(_TIMEOUT_S) or failures:
            raise RuntimeError(f"records for {input} were not acknowledged: {failures or 'no answer'}")

    def run_batch(self) -> Batch:
        """Takes all records that were not read yet to the outputs, in one batch. Raises the refusals of a batch, after
        which the next call tries the same records again."""
        if self._batches is None:
            return self._run_once()
        ends = log_ends(self._bootstrap, self._inputs)
        if ends == self._position or not any(any(each.values()) for each in ends.values()):
            return Batch(0, dict.fromkeys(self.pipeline.outputs, 0))
        report = self._batches.process(self._source(ends), self._batch_id, {})
        self._batch_id += 1
        self._position = ends
        return Batch(report.rows_in or 0, dict(report.rows_out), report.quarantined, report.rules)

    def rows(self, output: str) -> list[dict[str, Any]]:
        """The rows of a table as it is now, or the values of a topic's committed records; tombstones are left out."""
        declared = self.pipeline.outputs[output]
        if isinstance(declared, Table):
            return list(_table_rows(self._table_directory(declared), declared))
        values = [value for _, value in self.records(output) if value is not None]
        return [json.loads(value) if isinstance(declared.value, Json) else {"value": value} for value in values]

    def records(self, output: str) -> list[tuple[bytes | None, bytes | None]]:
        """Key and value of the committed records of an output topic, those of a partition in order."""
        declared = self.pipeline.outputs[output]
        if not isinstance(declared, Topic):
            raise KeyError(f"{output} is a table of {self.pipeline.name}, and no topic")
        found = committed_records(declared.name, self._bootstrap, ("key", "value"))
        return [(row["key"], row["value"]) for batch in found for row in batch.to_pylist()]

    def quarantined(self) -> list[SetAside]:
        """The records in quarantine."""
        topic = self.pipeline.quarantine_topic
        if not log_ends(self._bootstrap, [topic]):
            return []
        found = committed_records(topic, self._bootstrap, ("key", "value", "headers"))
        return [set_aside_of(row) for batch in found for row in batch.to_pylist()]

    def _source(self, ends: Positions) -> "DataFrame":
        starts = {
            topic: {partition: self._position.get(topic, {}).get(partition, 0) for partition in each}
            for topic, each in ends.items()
        }
        options = {
            **connection_options(self._bootstrap),
            "kafka.isolation.level": "read_committed",
            "assign": json.dumps({topic: sorted(each) for topic, each in ends.items()}),
            "startingOffsets": json.dumps(to_json(starts)),
            "endingOffsets": json.dumps(to_json(ends)),
            "includeHeaders": "true",
        }
        return self._spark.read.format("cordwood").options(**options).load()

    def _run_once(self) -> Batch:
        told: list[Event] = []
        running = start(
            self.pipeline,
            self._spark,
            bootstrap_servers=self._bootstrap.for_librdkafka(),
            directory=self._directory / "project",
            once=True,
            tell=told.append,
        )
        running.wait()
        events = [event for event in told if event["event"] == "batch"]
        if not events:
            return Batch(0, dict.fromkeys(self.pipeline.outputs, 0))
        (event,) = events[:1]
        return Batch(event["rows_in"] or 0, event["rows_out"], event["quarantined"], event["rules"])

    def _table_directory(self, table: Table) -> Any:
        if self._batches is not None:
            return self._directory / "tables" / table.name
        state = Project(self._directory / "project").state(self.pipeline.name)
        return state.table_directory(state.live_edition(), table.name)


def _without_databases(pipeline: Pipeline) -> Pipeline:
    """The pipeline with tables of files in the place of those of databases, with the same rows."""
    outputs = {
        name: replace(output, format=TableFormat.DELTA, location=None, storage_options={})
        if isinstance(output, Table) and output.format is TableFormat.POSTGRESQL
        else output
        for name, output in pipeline.outputs.items()
    }
    return replace(pipeline, outputs=outputs)


def _make_topics(bootstrap: Bootstrap, names: Sequence[str], partitions: int) -> None:
    admin = AdminClient({**bootstrap.for_librdkafka()})
    there = admin.list_topics(timeout=_TIMEOUT_S).topics
    missing = [NewTopic(name, num_partitions=partitions) for name in names if name not in there]
    for answer in (admin.create_topics(missing) if missing else {}).values():
        answer.result(_TIMEOUT_S)


def _arguments(each: Encoded) -> dict[str, Any]:
    return {
        "topic": each.topic,
        "key": each.key,
        "value": each.value,
        "partition": each.partition,
        "timestamp": round(each.timestamp.timestamp() * 1000),
        "headers": list(each.headers),
    }


def _table_rows(place: Any, table: Table) -> Iterator[dict[str, Any]]:
    import pyarrow.parquet as pq

    found = snapshot(place, table.format)
    if found is None:
        return
    names = found.schema.names
    for path in found.files:
        # A file that is older than a column lacks it.
        for row in pq.ParquetFile(str(path)).read().to_pylist():
            yield {name: row.get(name) for name in names}
