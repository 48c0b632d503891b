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
from dataclasses import dataclass
from functools import reduce
from itertools import zip_longest
from typing import TYPE_CHECKING, Any, Final

from cordwood.pipelines import quarantine
from cordwood.pipelines.decoding import ERROR, POISON, inputs_of
from cordwood.pipelines.definition import RECORD, Pipeline
from cordwood.pipelines.errors import InvalidRows, Refusal
from cordwood.pipelines.guarding import diverting
from cordwood.pipelines.isolation import Origin, Span, find_poison
from cordwood.pipelines.outputs import Outputs, Work
from cordwood.pipelines.positions import Positions

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

_MAX_ROUNDS: Final = 20
"""How often a batch is begun again after poison records were found in it."""
_MAX_ERROR_LENGTH: Final = 500
_PYTHON_EXCEPTION: Final = re.compile(r"[A-Za-z_]\w*(Error|Exception|Warning)\b")


@dataclass(frozen=True)
class BatchReport:
    """What came of a batch. `rows_out` has the outputs that were written, also those that had been before."""

    batch_id: int
    rows_in: int | None
    """None: only Spark knows."""
    rows_out: Mapping[str, int]
    quarantined: int
    skipped: Sequence[str]
    """Outputs that are not replayable, in a replay."""
    repeated: Sequence[str]
    """Tables that had this batch already, from a run that was interrupted."""
    duration_ms: int
    remarks: Sequence[str] = ()


class Batches:
    """Takes batches of records through a pipeline's function to its outputs."""

    def __init__(self, pipeline: Pipeline, outputs: Outputs) -> None:
        self._pipeline = pipeline
        self._outputs = outputs
        self._may_be_repeated = True

    def process(self, source: "DataFrame", batch_id: int, effects_from: Positions) -> BatchReport:
        """Raises a refusal or whatever Spark raises. Whatever was committed by then is passed over the next time."""
        started = time.monotonic()
        with ExitStack() as kept:
            if len(self._pipeline.inputs) > 1:
                source = _persisted(source, kept)
            inputs = {name: _persisted(rows, kept) for name, rows in inputs_of(self._pipeline, source).items()}
            rows_in, bad = self._count(inputs, batch_id)
            repeated = self._outputs.repeated(batch_id)
            good, before = good_rows(inputs), self._set_aside_before(source.sparkSession, batch_id)
            if before is not None:
                # They stay aside though they may pass now: from quarantine they would come into the outputs again.
                before = _persisted(before.distinct(), kept)
                good = {name: quarantine.without_those(rows, before) for name, rows in good.items()}
            work, poison = self._make(good, batch_id, rows_in, bad, effects_from)
            kept.callback(lambda: [rows.unpersist() for rows in work.kept])
            who = self._outputs.who(batch_id)
            aside = []
            if bad:
                aside = quarantine.undecoded(inputs.values(), who, self._effects(effects_from, f"{RECORD}."))
            if poison:
                aside.append(quarantine.failed(source, poison, who, self._effects(effects_from, "")))
            if aside:
                self._outputs.quarantine(reduce(lambda one, two: one.unionByName(two), aside), batch_id)
            quarantined = bad + len(poison) if before is None else before.count()
            self._outputs.commit(work, batch_id, repeated)
        remarks = self._outputs.tidy()
        return BatchReport(
            batch_id,
            rows_in,
            work.rows,
            quarantined,
            self._outputs.skipped,
            repeated,
            round((time.monotonic() - started) * 1000),
            remarks,
        )

    def _set_aside_before(self, spark: "SparkSession", batch_id: int) -> "DataFrame | None":
        """What an interrupted run of this batch has quarantined. Only the first batch of a query may be repeated."""
        may_be_repeated, self._may_be_repeated = self._may_be_repeated, False
        return self._outputs.set_aside_before(spark, batch_id) if may_be_repeated else None

    def _effects(self, effects_from: Positions, address: str) -> "Column | None":
        """What is said of effects of records that are set aside: a later requeue has them, or they were had."""
        from pyspark.sql import functions as F

        if all(output.replayable for output in self._outputs.wanted.values()):
            return None
        return F.when(_before(effects_from, address), quarantine.EFFECTS_HAD).otherwise(quarantine.EFFECTS_DUE)

    def _count(self, inputs: "Mapping[str, DataFrame]", batch_id: int) -> tuple[int, int]:
        """Records, and records that could not be decoded."""
        from pyspark.sql import functions as F

        rows_in = bad = 0
        samples: list[tuple[Origin, str]] = []
        for rows in inputs.values():
            (counted,) = rows.agg(F.count(F.lit(1)).alias("rows"), F.count(ERROR).alias("bad")).collect()
            rows_in += counted["rows"]
            bad += counted["bad"]
            if counted["bad"] and len(samples) < quarantine.SHOWN:
                samples += quarantine.samples(rows)
        quarantine.check_budget(self._pipeline, batch_id, rows_in, bad, samples)
        return rows_in, bad

    # The function, and whose fault a failure is

    def _make(
        self, good: "Mapping[str, DataFrame]", batch_id: int, rows_in: int, bad: int, effects_from: Positions
    ) -> tuple[Work, dict[Origin, str]]:
        """Every output staged, without the records that were found to be poison."""
        poison: dict[Origin, str] = {}
        left = min(self._pipeline.budget.allowed(rows_in) - bad, quarantine.MAX_ISOLATED)
        for _ in range(_MAX_ROUNDS):
            rows = {name: quarantine.without(each, poison) for name, each in good.items()}
            work = Work()
            found: dict[Origin, str] = {}
            try:
                self._stage(rows, effects_from, work)
                found = quarantine.origins_of(work.failures, left - len(poison) + 1)
            except Exception as failure:
                self._outputs.discard(work)
                if isinstance(failure, Refusal) or not _may_be_the_rows_fault(failure):
                    raise
                found = self._isolated(rows, left - len(poison))
                if not found:
                    raise
            else:
                if not found:
                    return work, poison
                self._outputs.discard(work)
            poison.update(found)
            samples = list(poison.items())
            quarantine.check_budget(self._pipeline, batch_id, rows_in, bad + len(poison), samples, is_all=False)
            quarantine.check_isolated(self._pipeline, batch_id, len(poison))
        raise InvalidRows(f"{self._pipeline.name}: batch {batch_id} still fails without {len(poison)} poison records")

    def _stage(self, inputs: "Mapping[str, DataFrame]", effects_from: Positions, work: Work) -> None:
        effects = [name for name, output in self._outputs.wanted.items() if not output.replayable]
        with diverting(persist=True) as diverted:
            work.failures, work.kept = diverted.failures, diverted.kept
            outputs = outputs_of(self._pipeline, inputs)
            if effects and effects_from and _has_rows_before(inputs, effects_from):
                # Some of these records had their effects when another edition was live: they have none now.
                rest = {name: rows.where(~_before(effects_from)) for name, rows in inputs.items()}
                ours = outputs_of(self._pipeline, rest)
                outputs.update({name: ours[name] for name in effects})
        self._outputs.stage(outputs, work)

    def _isolated(self, inputs: "Mapping[str, DataFrame]", limit: int) -> dict[Origin, str]:
        def probe(spans: Sequence[Span]) -> str | None:
            return self._failure({name: rows.where(_within(spans)) for name, rows in inputs.items()})

        return find_poison(_spans(inputs), probe, limit)

    def _failure(self, inputs: "Mapping[str, DataFrame]") -> str | None:
        """What the function fails with on these rows, if it does."""
        with diverting(persist=False):
            try:
                for rows in outputs_of(self._pipeline, inputs).values():
                    rows.write.format("noop").mode("overwrite").save()
            except Refusal:
                raise
            except Exception as failure:
                return _in_words(failure)
        return None


def good_rows(inputs: "Mapping[str, DataFrame]") -> "dict[str, DataFrame]":
    """What the function gets: the rows that could be decoded."""
    return {name: rows.where(f"{ERROR} is null").drop(ERROR, POISON) for name, rows in inputs.items()}


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


def _within(spans: Sequence[Span], address: str = f"{RECORD}.") -> "Column":
    """Of rows whose record's place is in the columns `<address>topic`, `<address>partition` and `<address>offset`."""
    from pyspark.sql import functions as F

    conditions = [
        (F.col(f"{address}topic") == span.topic)
        & (F.col(f"{address}partition") == span.partition)
        & (F.col(f"{address}offset") >= span.start)
        & (F.col(f"{address}offset") < span.end)
        for span in spans
    ]
    # By halves: Spark walks through a condition by recursion, and a topic may have a thousand partitions.
    while len(conditions) > 1:
        pairs = zip_longest(conditions[::2], conditions[1::2], fillvalue=F.lit(False))
        conditions = [one | two for one, two in pairs]
    return conditions[0] if conditions else F.lit(False)


def _before(positions: Positions, address: str = f"{RECORD}.") -> "Column":
    return _within(
        [Span(topic, partition, 0, end) for topic, each in positions.items() for partition, end in each.items()],
        address,
    )


def _has_rows_before(inputs: "Mapping[str, DataFrame]", positions: Positions) -> bool:
    return any(rows.where(_before(positions)).limit(1).count() for rows in inputs.values())


def _may_be_the_rows_fault(failure: Exception) -> bool:
    """Failures of Spark's tasks may be; those of planning, of the driver and of Python itself are not."""
    from py4j.protocol import Py4JJavaError
    from pyspark.errors import AnalysisException, ParseException, PySparkException

    if isinstance(failure, AnalysisException | ParseException):
        return False
    return isinstance(failure, PySparkException | Py4JJavaError)


def _in_words(failure: Exception) -> str:
    """The line that tells most: a Python function's own exception, else the first one of Spark's."""
    lines = [line.strip() for line in str(failure).splitlines() if line.strip()]
    python = [line for line in lines if _PYTHON_EXCEPTION.match(line)]
    return (python[-1:] or lines or [type(failure).__name__])[0][:_MAX_ERROR_LENGTH]
