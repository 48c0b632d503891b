"""One micro-batch, from the source's rows to every output, once.

The work comes first: rows are decoded, the function is called, every output is staged, and poison records are found
and set aside, as often as it takes. If the budget holds, the batch is committed: the quarantine, then tables, then
topics. Each of them keeps the batch's number with the batch and takes it once, so a batch that was interrupted anywhere
is done again from the beginning and ends up in every output one time.
"""

import re
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import reduce
from hashlib import sha256
from itertools import zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from cordwood.pipelines import quarantine
from cordwood.pipelines.decoding import ERROR, POISON, inputs_of
from cordwood.pipelines.definition import RECORD, Pipeline, Table, TableFormat, Topic
from cordwood.pipelines.encoding import records
from cordwood.pipelines.errors import InvalidRows, Refusal, WrongState
from cordwood.pipelines.guarding import diverting
from cordwood.pipelines.isolation import Origin, Span, find_poison
from cordwood.pipelines.positions import Positions
from cordwood.pipelines.tables.delta import DeltaBatches
from cordwood.pipelines.tables.latest_rows import null_key_rows
from cordwood.pipelines.tables.parquet import ParquetBatches
from cordwood.pipelines.tables.staged import BatchTable, Staged

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

_MAX_ROUNDS: Final = 20
"""How often a batch is begun again after poison records were found in it."""
_MAX_ERROR_LENGTH: Final = 500
_PYTHON_EXCEPTION: Final = re.compile(r"[A-Za-z_]\w*(Error|Exception|Warning)\b")
MAX_ISOLATED: Final = 10_000
"""Poison records of one batch that are told apart by their address, in the driver's memory."""


@dataclass(frozen=True)
class Place:
    """Where the outputs of an edition are."""

    tables: Mapping[str, Path]
    """By the table's name."""
    topics: Mapping[str, str]
    """By the declared topic's name."""
    staging: Path
    bootstrap_servers: str
    edition: str


@dataclass(frozen=True)
class BatchReport:
    """What came of a batch. `rows_out` has the outputs that were written, also those that had been before."""

    batch_id: int
    rows_in: int
    rows_out: Mapping[str, int]
    quarantined: int
    skipped: Sequence[str]
    """Outputs that are not replayable, in a replay."""
    repeated: Sequence[str]
    """Outputs that had this batch already, from a run that was interrupted."""
    duration_ms: int
    remarks: Sequence[str] = ()


@dataclass
class _Work:
    """A batch while it is being made."""

    staged: dict[str, "Staged | DataFrame"] = field(default_factory=dict)
    rows: dict[str, int] = field(default_factory=dict)
    failures: "list[DataFrame]" = field(default_factory=list)
    kept: "list[DataFrame]" = field(default_factory=list)


class Batches:
    """Takes the batches of one application (one query with its checkpoint) to a pipeline's outputs."""

    def __init__(self, pipeline: Pipeline, place: Place, application: str, *, replaying: bool) -> None:
        self._pipeline = pipeline
        self._place = place
        self._application = application
        self._tables: dict[str, BatchTable] = {
            name: _open_table(table, place) for name, table in pipeline.tables.items()
        }
        self._skipped = [name for name, output in pipeline.outputs.items() if replaying and not output.replayable]

    def process(self, source: "DataFrame", batch_id: int, effects_from: Positions) -> BatchReport:
        """Raises a refusal or whatever Spark raises. Whatever was committed by then is passed over the next time."""
        started = time.monotonic()
        with ExitStack() as kept:
            if len(self._pipeline.inputs) > 1:
                source = _persisted(source, kept)
            inputs = {name: _persisted(rows, kept) for name, rows in inputs_of(self._pipeline, source).items()}
            rows_in, bad = self._count(inputs, batch_id)
            good = {name: rows.where(f"{ERROR} is null").drop(ERROR, POISON) for name, rows in inputs.items()}
            repeated = self._repeated(batch_id)
            work, poison = self._make(good, batch_id, rows_in, bad, effects_from, kept)
            self._quarantine(source, inputs if bad else {}, poison, batch_id)
            self._commit(work, batch_id, repeated)
        quarantined = bad + len(poison)
        remarks = self._tidy()
        duration_ms = round((time.monotonic() - started) * 1000)
        return BatchReport(
            batch_id, rows_in, work.rows, quarantined, tuple(self._skipped), tuple(repeated), duration_ms, remarks
        )

    # Decoding

    def _count(self, inputs: "Mapping[str, DataFrame]", batch_id: int) -> tuple[int, int]:
        from pyspark.sql import functions as F

        rows_in = bad = 0
        samples: list[tuple[Origin, str]] = []
        for rows in inputs.values():
            (counted,) = rows.agg(F.count(F.lit(1)).alias("rows"), F.count(ERROR).alias("bad")).collect()
            rows_in += counted["rows"]
            bad += counted["bad"]
            if counted["bad"] and len(samples) < quarantine.SHOWN:
                found = rows.where(F.col(ERROR).isNotNull()).select(f"{RECORD}.*", ERROR).limit(quarantine.SHOWN)
                samples += [
                    (Origin(row["topic"], row["partition"], row["offset"]), row[ERROR]) for row in found.collect()
                ]
        quarantine.check_budget(self._pipeline, batch_id, rows_in, bad, samples)
        return rows_in, bad

    # The function, and whose fault a failure is

    def _make(
        self,
        good: "Mapping[str, DataFrame]",
        batch_id: int,
        rows_in: int,
        bad: int,
        effects_from: Positions,
        kept: ExitStack,
    ) -> tuple[_Work, dict[Origin, str]]:
        """Every output staged, without the records that were found to be poison."""
        poison: dict[Origin, str] = {}
        left = min(self._pipeline.budget.allowed(rows_in) - bad, MAX_ISOLATED)
        for _ in range(_MAX_ROUNDS):
            rows = {name: quarantine.without(each, poison) for name, each in good.items()}
            work = _Work()
            found: dict[Origin, str]
            try:
                self._stage(rows, effects_from, work)
                found = self._diverted(work, left - len(poison) + 1)
                if not found:
                    for each in work.kept:
                        kept.callback(each.unpersist)
                    return work, poison
                self._discard(work)
            except Refusal:
                self._discard(work)
                raise
            except Exception as failure:
                self._discard(work)
                if not _may_be_the_rows_fault(failure):
                    raise
                found = self._isolated(rows, left - len(poison))
                if not found:
                    raise
            poison.update(found)
            samples = list(poison.items())
            quarantine.check_budget(self._pipeline, batch_id, rows_in, bad + len(poison), samples, is_all=False)
        raise InvalidRows(f"{self._pipeline.name}: batch {batch_id} still fails without {len(poison)} poison records")

    def _stage(self, inputs: "Mapping[str, DataFrame]", effects_from: Positions, work: _Work) -> None:
        """All of them, also those that have the batch already: which records are poison is for all outputs to say."""
        wanted = {name: output for name, output in self._pipeline.outputs.items() if name not in self._skipped}
        effects = [name for name, output in wanted.items() if not output.replayable]
        with diverting(persist=True) as diverted:
            outputs = self._call(inputs)
            if effects and effects_from and _has_rows_before(inputs, effects_from):
                # Some of these records had their effects when another edition was live: they have none now.
                ours = self._call({name: rows.where(~_before(effects_from)) for name, rows in inputs.items()})
                outputs.update({name: ours[name] for name in effects})
        work.failures, work.kept = diverted.failures, diverted.kept
        for name, output in wanted.items():
            rows = outputs[name]
            if isinstance(output, Topic):
                encoded = records(rows, output).persist()
                work.kept.append(encoded)
                work.staged[name], work.rows[name] = encoded, encoded.count()
                continue
            staged = self._tables[name].stage(rows)
            work.staged[name], work.rows[name] = staged, staged.rows
            if staged.null_keys:
                if RECORD not in rows.columns:
                    raise InvalidRows(
                        f"table {output.name}: {staged.null_keys} rows of a batch have a null key",
                        "keep the column _record, and their records are quarantined",
                    )
                work.failures.append(null_key_rows(rows, output))

    def _call(self, inputs: "Mapping[str, DataFrame]") -> "dict[str, DataFrame]":
        return outputs_of(self._pipeline, inputs)

    def _diverted(self, work: _Work, limit: int) -> dict[Origin, str]:
        """Records whose rows a guarded function failed on, or whose key is null."""
        found: dict[Origin, str] = {}
        for failures in work.failures:
            rows = failures.select(f"{RECORD}.topic", f"{RECORD}.partition", f"{RECORD}.offset", "error").limit(limit)
            for row in rows.collect():
                found.setdefault(Origin(row["topic"], row["partition"], row["offset"]), row["error"])
        return found

    def _isolated(self, inputs: "Mapping[str, DataFrame]", limit: int) -> dict[Origin, str]:
        def probe(spans: Sequence[Span]) -> str | None:
            return self._failure({name: rows.where(_within(spans)) for name, rows in inputs.items()})

        return find_poison(_spans(inputs), probe, limit)

    def _failure(self, inputs: "Mapping[str, DataFrame]") -> str | None:
        """What the function fails with on these rows, if it does."""
        with diverting(persist=False):
            try:
                for rows in self._call(inputs).values():
                    rows.write.format("noop").mode("overwrite").save()
            except Refusal:
                raise
            except Exception as failure:
                return _in_words(failure)
        return None

    def _discard(self, work: _Work) -> None:
        for rows in work.kept:
            rows.unpersist()
        for name, staged in work.staged.items():
            if isinstance(staged, Staged):
                self._tables[name].discard(staged)

    # Making it visible

    def _repeated(self, batch_id: int) -> list[str]:
        """Tables that have this batch. Topics know it too, and pass over what they have."""
        found = []
        for name, table in self._tables.items():
            last = table.last_batch(self._application_of(name))
            if name in self._skipped or last is None or last < batch_id:
                continue
            if last > batch_id:
                raise WrongState(
                    f"{self._pipeline.name}: batch {batch_id} comes after batch {last}, which the table {name} has: "
                    "Spark repeats only the last batch, so this is an old copy of the checkpoint",
                    f"`cordwood pipeline replay {self._pipeline.name}` builds the outputs anew",
                )
            found.append(name)
        return found

    def _quarantine(
        self, source: "DataFrame", inputs: "Mapping[str, DataFrame]", poison: Mapping[Origin, str], batch_id: int
    ) -> None:
        who = {
            "pipeline": self._pipeline.name,
            "version": str(self._pipeline.version),
            "edition": self._place.edition,
            "batch": str(batch_id),
        }
        found = quarantine.undecoded(inputs, who)
        if poison:
            found.append(quarantine.failed(source, poison, who))
        if found:
            rows = reduce(lambda first, second: first.unionByName(second), found)
            self._produce(rows, self._pipeline.quarantine_topic, "_quarantine", batch_id)

    def _commit(self, work: _Work, batch_id: int, repeated: Sequence[str]) -> None:
        for name, staged in work.staged.items():
            if not isinstance(staged, Staged):
                continue
            if name in repeated:
                self._tables[name].discard(staged)
            else:
                self._tables[name].commit(staged, self._application_of(name), batch_id)
        for name, rows in work.staged.items():
            if not isinstance(rows, Staged) and work.rows[name]:
                topic = self._pipeline.outputs[name].name
                self._produce(rows, self._place.topics[topic], name, batch_id)

    def _produce(self, rows: "DataFrame", topic: str, output: str, batch_id: int) -> None:
        (
            rows.write.format("cordwood")
            .option("kafka.bootstrap.servers", self._place.bootstrap_servers)
            .option("topic", topic)
            .option("family", self._application_of(output))
            .option("batchId", batch_id)
            .mode("append")
            .save()
        )

    def _application_of(self, output: str) -> str:
        """Every output counts batches by itself. The characters and the length are those of a family's name."""
        return f"{self._application}.{sha256(output.encode()).hexdigest()[:12]}"

    def _tidy(self) -> tuple[str, ...]:
        now_ms = int(time.time() * 1000)
        said = [table.tidy(now_ms) for name, table in self._tables.items() if name not in self._skipped]
        return tuple(text for text in said if text is not None)


def outputs_of(pipeline: Pipeline, inputs: "Mapping[str, DataFrame]") -> "dict[str, DataFrame]":
    """What the function returns, by output; a refusal if it is not what was declared."""
    from pyspark.sql import DataFrame

    returned: Any = pipeline.function(**inputs)
    if isinstance(returned, DataFrame) and len(pipeline.outputs) == 1:
        returned = dict.fromkeys(pipeline.outputs, returned)
    wanted = ", ".join(sorted(pipeline.outputs))
    if not isinstance(returned, Mapping):
        kind = type(returned).__name__
        raise InvalidRows(f"{pipeline.name}: the function returned {kind}, not DataFrames for {wanted}")
    if set(returned) != set(pipeline.outputs):
        raise InvalidRows(f"{pipeline.name}: the function returned {', '.join(sorted(returned))}, not {wanted}")
    return dict(returned)


def _open_table(table: Table, place: Place) -> BatchTable:
    directory = place.tables[table.name]
    if table.format is TableFormat.PARQUET:
        return ParquetBatches(directory, table)
    return DeltaBatches(directory, table, place.staging / table.name)


def _persisted(rows: "DataFrame", kept: ExitStack) -> "DataFrame":
    persisted = rows.persist()
    kept.callback(persisted.unpersist)
    return persisted


def _spans(inputs: "Mapping[str, DataFrame]") -> list[Span]:
    from pyspark.sql import functions as F

    found = []
    for rows in inputs.values():
        by_partition = rows.groupBy(f"{RECORD}.topic", f"{RECORD}.partition").agg(
            F.min(f"{RECORD}.offset").alias("first"), F.max(f"{RECORD}.offset").alias("last")
        )
        found += [Span(row["topic"], row["partition"], row["first"], row["last"] + 1) for row in by_partition.collect()]
    return sorted(found)


def _within(spans: Sequence[Span]) -> "Column":
    from pyspark.sql import functions as F

    conditions = [
        (F.col(f"{RECORD}.topic") == span.topic)
        & (F.col(f"{RECORD}.partition") == span.partition)
        & (F.col(f"{RECORD}.offset") >= span.start)
        & (F.col(f"{RECORD}.offset") < span.end)
        for span in spans
    ]
    # By halves: Spark walks through a condition by recursion, and a topic may have a thousand partitions.
    while len(conditions) > 1:
        pairs = zip_longest(conditions[::2], conditions[1::2], fillvalue=F.lit(False))
        conditions = [one | two for one, two in pairs]
    return conditions[0] if conditions else F.lit(False)


def _before(positions: Positions) -> "Column":
    return _within(
        [Span(topic, partition, 0, end) for topic, each in positions.items() for partition, end in each.items()]
    )


def _has_rows_before(inputs: "Mapping[str, DataFrame]", positions: Positions) -> bool:
    return any(rows.where(_before(positions)).limit(1).count() for rows in inputs.values())


def _may_be_the_rows_fault(failure: Exception) -> bool:
    """Failures of Spark's tasks may be; those of planning, of the driver and of Python itself are not."""
    from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
    from pyspark.errors import AnalysisException, ParseException, PySparkException

    if isinstance(failure, AnalysisException | ParseException):
        return False
    return isinstance(failure, PySparkException | Py4JJavaError)


def _in_words(failure: Exception) -> str:
    """The line that tells most: a Python function's own exception, else the first one of Spark's."""
    lines = [line.strip() for line in str(failure).splitlines() if line.strip()]
    python = [line for line in lines if _PYTHON_EXCEPTION.match(line)]
    return (python[-1:] or lines or [type(failure).__name__])[0][:_MAX_ERROR_LENGTH]
