"""All outputs of a pipeline together: a batch is staged in each of them, then committed in each of them once.

A topic's records are staged in open transactions, which readers of committed records do not see; a table's rows in
files that its log does not name. Tables are committed first, then topics. Each output keeps the number of the batch
with the batch, in its own log. Numbers belong to one application: a query with its checkpoint, or the requeues of an
edition.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol

from cordwood.client.bootstrap import Bootstrap
from cordwood.client.cluster import Cluster
from cordwood.pipelines.definition.definition import RECORD, Output, Pipeline, Topic
from cordwood.pipelines.definition.errors import InvalidRows, WrongState
from cordwood.pipelines.definition.table_output import Table, TableFormat
from cordwood.pipelines.editions.events import Spent
from cordwood.pipelines.formats.places import TablePlace
from cordwood.pipelines.formats.table_formats import unwritable_rows, writer
from cordwood.pipelines.postgresql.batches import PostgresBatches
from cordwood.pipelines.postgresql.place import Database
from cordwood.pipelines.rows import quarantine
from cordwood.pipelines.rows.encoding import records
from cordwood.pipelines.rows.watching import keeps_order, saw
from cordwood.pipelines.tables.staged import BatchTable, Change, Staged
from cordwood.pipelines.tables.steps import TableStep
from cordwood.pipelines.tables.stores import ObjectStore
from cordwood.spark.options.security import connection_options
from cordwood.spark.sink.steps import reached
from cordwood.wire.apis import ApiKey

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from cordwood.spark.sink.staging import StagedRecords


_TOPIC_WITHIN_MS: Final = 10_000


class OtherPoison(Exception):
    """A second read of a batch found other poison records than the first."""


@dataclass(frozen=True)
class Place:
    """The places of an edition's outputs."""

    tables: Mapping[str, TablePlace]
    """Places by the table's name."""
    topics: Mapping[str, str]
    """Topics by the declared topic's name."""
    staging: Path
    bootstrap: Bootstrap
    edition: str


@dataclass
class Work:
    """A batch while it is made. `tables` and `topics` hold what is staged and not committed."""

    tables: dict[str, Staged] = field(default_factory=dict)
    topics: "dict[str, StagedRecords]" = field(default_factory=dict)
    rows: dict[str, int] = field(default_factory=dict)
    spent: dict[str, Spent] = field(default_factory=dict)
    failures: "list[DataFrame]" = field(default_factory=list)
    """(`_record`, `error`) of rows that cannot be written; their records are quarantined."""
    kept: "list[DataFrame]" = field(default_factory=list)
    """DataFrames that stay persisted until the batch is done."""

    def committed_in(self, name: str, commit_ms: int) -> None:
        self.spent[name] = replace(self.spent[name], commit_ms=commit_ms)


class BatchOutputs(Protocol):
    """The outputs of a batch: what takes its rows, and its quarantined records."""

    @property
    def wanted(self) -> Mapping[str, Output]: ...

    @property
    def skipped(self) -> Sequence[str]: ...

    def repeated(self, batch_id: int) -> list[str]: ...

    def set_aside_before(self, spark: "SparkSession", batch_id: int) -> "DataFrame | None": ...

    def stage(
        self, outputs: "Mapping[str, DataFrame]", work: Work, batch_id: int, *, in_order: bool = False
    ) -> None: ...

    def discard(self, work: Work) -> None: ...

    def commit(self, work: Work, batch_id: int, repeated: Sequence[str]) -> None: ...

    def quarantine(self, rows: "DataFrame", batch_id: int, *, expected: int | None = None) -> None: ...

    def who(self, batch_id: int) -> dict[str, str]: ...

    def tidy(self) -> tuple[str, ...]: ...


class Outputs:
    """The outputs of one edition. `replaying`: nothing is written to outputs that are not replayable. `before_effects`
    is called before a batch writes to such outputs, `before_commit` before anything of a batch is committed. `requeue`:
    the batches are requeues, which have numbers of their own."""

    def __init__(
        self,
        pipeline: Pipeline,
        place: Place,
        query_id: str,
        *,
        replaying: bool,
        before_effects: Callable[[int], None] | None = None,
        before_commit: Callable[[int], None] | None = None,
        requeue: bool = False,
    ) -> None:
        self._pipeline = pipeline
        self._before_effects = before_effects
        self._before_commit = before_commit
        self._place = place
        self._query_id = query_id
        self._application = f"{query_id}.requeue" if requeue else query_id
        self._series = "requeue " if requeue else ""
        self._tables: dict[str, BatchTable] = {
            name: _open_table(table, place) for name, table in pipeline.tables.items()
        }
        self.skipped = tuple(name for name, each in pipeline.outputs.items() if replaying and not each.replayable)
        self.wanted: Mapping[str, Output] = {
            name: each for name, each in pipeline.outputs.items() if name not in self.skipped
        }
        self.changes: dict[str, Change] = {}
        """The changes of the last batch to the files of each table that took it."""

    def stage(self, outputs: "Mapping[str, DataFrame]", work: Work, batch_id: int, *, in_order: bool = False) -> None:
        """Stages a batch in all outputs, also in those that have it already: any output may find poison records.
        `in_order`: the source gave the records of a partition to one task, in the order of their offsets."""
        for name, output in self.wanted.items():
            rows, began_s = outputs[name], time.monotonic()
            if isinstance(output, Topic):
                work.topics[name] = written = self._stage_topic(rows, output, batch_id, in_order=in_order)
                saw(written.frame)
                work.rows[name] = written.rows
                work.spent[name] = Spent(_ms_since(began_s), written.input_ms, written.write_ms)
                continue
            work.tables[name] = staged = self._tables[name].stage(rows)
            reached(TableStep.STAGED)
            work.rows[name] = staged.rows
            work.spent[name] = Spent(_ms_since(began_s), staged.input_ms, staged.write_ms)
            if staged.null_keys:
                if RECORD not in rows.columns:
                    raise unwritable_without_a_record(output, staged.null_keys, self._pipeline)
                work.failures.append(unwritable_rows(rows, output))

    def discard(self, work: Work) -> None:
        """Takes back everything that is staged and not committed."""
        for rows in work.kept:
            rows.unpersist()
        while work.tables:
            name, staged = work.tables.popitem()
            self._tables[name].discard(staged)
        while work.topics:
            _, written = work.topics.popitem()
            written.discard()

    def repeated(self, batch_id: int) -> list[str]:
        """Tables that have this batch already. Topics know by themselves, and skip the records that they have."""
        found = []
        for name, table in self._tables.items():
            if name in self.skipped:
                continue
            last = table.last_batch(self._application_of(self._pipeline.outputs[name]))
            if last is None or last < batch_id:
                continue
            if last > batch_id:
                raise WrongState(
                    f"{self._pipeline.name}: batch {batch_id} comes after batch {last}, which the table {name} has: "
                    "Spark repeats only the last batch, so this is an old copy of the checkpoint",
                    f"`cordwood pipeline replay {self._pipeline.name}` builds the outputs anew",
                )
            found.append(name)
        return found

    def commit(self, work: Work, batch_id: int, repeated: Sequence[str]) -> None:
        self.changes = {}
        self._commits(batch_id)
        effects = any(work.rows[name] for name, output in self.wanted.items() if not output.replayable)
        if effects and self._before_effects is not None:
            self._before_effects(batch_id)
        # A commit that was begun is never taken back: readers may see it.
        for name in list(work.tables):
            staged, began_s = work.tables.pop(name), time.monotonic()
            if name in repeated:
                self._tables[name].discard(staged)
            else:
                application = self._application_of(self._pipeline.outputs[name])
                self.changes[name] = self._tables[name].commit(staged, application, batch_id)
                reached(TableStep.COMMITTED)
            work.committed_in(name, _ms_since(began_s))
        for name in list(work.topics):
            began_s = time.monotonic()
            work.topics.pop(name).commit()
            work.committed_in(name, _ms_since(began_s))

    @property
    def taken(self) -> Mapping[str, Mapping[str, int]]:
        """The last batches that tables in databases are known to have, by the table's name and application."""
        return {
            self._pipeline.tables[name].name: dict(table.taken)
            for name, table in self._tables.items()
            if isinstance(table, PostgresBatches)
        }

    def quarantine(self, rows: "DataFrame", batch_id: int, *, expected: int | None = None) -> None:
        """Quarantines records before the rest of the batch is committed: a record may be in quarantine and not yet
        missing, never the reverse. Raises OtherPoison, with nothing written, if there are not as many records as
        expected."""
        if self._has_quarantined(batch_id):
            quarantine.check_repeated(rows, self._quarantined(rows.sparkSession), self.who(batch_id))
            return
        written = self._stage(rows, self._pipeline.quarantine_topic, self._application_of(None), batch_id)
        try:
            if expected is not None and written.rows != expected:
                raise OtherPoison(f"{written.rows} records to set aside where {expected} were counted")
            self._commits(batch_id)
        except BaseException:
            written.discard()
            raise
        written.commit()

    def set_aside_before(self, spark: "SparkSession", batch_id: int) -> "DataFrame | None":
        """Records (`topic`, `partition`, `offset`) that this batch quarantined before it was interrupted; None if it
        was not."""
        if not self._has_quarantined(batch_id):
            return None
        return quarantine.addresses_of(self._quarantined(spark), self.who(batch_id))

    def who(self, batch_id: int) -> dict[str, str]:
        """Headers of quarantined records that name the pipeline, edition, query and batch that gave up on them."""
        return {
            "pipeline": self._pipeline.name,
            "version": str(self._pipeline.version),
            "edition": self._place.edition,
            "query": self._query_id,
            "batch": f"{self._series}{batch_id}",
        }

    def tidy(self) -> tuple[str, ...]:
        now_ms = int(time.time() * 1000)
        said = [table.tidy(now_ms) for name, table in self._tables.items() if name not in self.skipped]
        return tuple(text for text in said if text is not None)

    def _commits(self, batch_id: int) -> None:
        if self._before_commit is not None:
            self._before_commit(batch_id)

    def _has_quarantined(self, batch_id: int) -> bool:
        """True if an interrupted run has quarantined records of this batch: readers see all of them from now on. If
        False, records that such a run left open are taken back, and can no longer be committed."""
        with Cluster(self._place.bootstrap.settings()) as cluster:
            if not cluster.supports(ApiKey.FAMILY_DECIDE):
                return False
            found = cluster.family_decide(self._application_of(None), batch_id, commit=False)
        return found.already_decided and found.last_batch_id == batch_id

    def _quarantined(self, spark: "SparkSession") -> "DataFrame":
        return (
            spark.read.format("cordwood")
            .options(**connection_options(self._place.bootstrap))
            .option("kafka.isolation.level", "read_committed")
            .option("subscribe", self._pipeline.quarantine_topic)
            .option("includeHeaders", "true")
            .load()
        )

    def _stage_topic(self, rows: "DataFrame", output: Topic, batch_id: int, *, in_order: bool) -> "StagedRecords":
        encoded = records(rows, output, in_order=in_order and keeps_order(rows))
        return self._stage(encoded, self._place.topics[output.name], self._application_of(output), batch_id)

    def _stage(self, rows: "DataFrame", topic: str, application: str, batch_id: int) -> "StagedRecords":
        from cordwood.spark.sink.staging import stage_records

        options = {
            **connection_options(self._place.bootstrap),
            "topic": topic,
            "family": application,
            "batchId": str(batch_id),
            # Plans are compared before a batch begins, and a function may give other rows the second time.
            "otherRowCount": "skip",
            # The topic was there when the batch began. A deleted topic that a broker makes again would be empty.
            "createTopics": "false",
            "kafka.max.block.ms": str(_TOPIC_WITHIN_MS),
        }
        return stage_records(rows, options)

    def _application_of(self, output: Table | Topic | None) -> str:
        """The application of an output or of the quarantine (None), each of which counts batches by itself. An output
        is known by its declared name: the function's name for it may change between two tries of a batch. Characters
        and length are those of a family's name."""
        what = "quarantine" if output is None else f"{type(output).__name__} {output.name}"
        return f"{self._application}.{sha256(what.encode()).hexdigest()[:12]}"


def unwritable_without_a_record(table: Table, rows: int, pipeline: Pipeline) -> InvalidRows:
    is_of_database = table.format is TableFormat.POSTGRESQL
    what = "a null key, or a value that PostgreSQL cannot store" if is_of_database else "a null key"
    left_out = (
        f'leave such rows out in the function: where("{" and ".join(f"{key} is not null" for key in table.key)}")'
    )
    kept = "keep the column _record, and their records are quarantined; where a row is made of several records, "
    return InvalidRows(
        f"table {table.name}: {rows} rows of a batch have {what}",
        left_out if pipeline.settings.stateful else f"{kept}{left_out}",
    )


def _ms_since(began_s: float) -> int:
    return round((time.monotonic() - began_s) * 1000)


def _open_table(table: Table, place: Place) -> BatchTable:
    where = place.tables[table.name]
    if isinstance(where, ObjectStore | Database):
        # The edition's facts have no credentials; the definition may have some.
        where = where.with_options(table.storage_options)
    return writer(where, table, place.staging / table.name)
