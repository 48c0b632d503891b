"""Pipelines whose function needs Spark's state: the function is called once, with streams; one query has all its
outputs.

The outputs, and the records that could not be decoded, are branches of one stream. Every row names its branch, so that
a micro-batch comes with all of them, under one number. Spark reads the log once for each branch.

A record cannot be taken out of a state: only records that fail before they reach it, in decoding or in a guarded
function, are set aside; any other failure ends the query.
"""

import json
import time
from collections import Counter
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import reduce
from typing import TYPE_CHECKING, Final

from cordwood.client.bootstrap import Bootstrap
from cordwood.pipelines.definition.definition import ERROR, POISON, RECORD, RULE, Pipeline
from cordwood.pipelines.definition.errors import InvalidRows
from cordwood.pipelines.definition.expectations import Else
from cordwood.pipelines.execution.batches import BatchReport, good_rows, outputs_of, spent_on
from cordwood.pipelines.execution.outputs import Outputs, Work
from cordwood.pipelines.rows import quarantine
from cordwood.pipelines.rows.decoding import inputs_of, parsed_once
from cordwood.pipelines.rows.guarding import diverting
from cordwood.pipelines.rows.isolation import Origin
from cordwood.pipelines.rows.quarantine import Why
from cordwood.pipelines.rows.rules import JudgedOutputs, broken_in, check_output, outcomes, rule_broken, shown_rows
from cordwood.pipelines.rows.watching import count_of, counted, watching
from cordwood.spark.options.security import connection_options

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_BRANCH: Final = "_branch"
_UNDECODED: Final = "_undecoded"
"""Records that cannot be decoded, or break a rule of their input."""
_FAILED: Final = "_failed"


def one_stream(pipeline: Pipeline, rows: "DataFrame") -> "DataFrame":
    """Takes the source's stream through the function: all branches in one stream, as columns of their own."""
    from pyspark.sql import functions as F

    inputs = {name: parsed_once(each, f"input {name}") for name, each in inputs_of(pipeline, rows).items()}
    with diverting(persist=False) as diverted:
        outputs = outputs_of(pipeline, good_rows(inputs))
    for name, output in pipeline.outputs.items():
        check_output(outputs[name], output)

    def branch(rows: "DataFrame", name: str) -> "DataFrame":
        return rows.select(F.lit(name).alias(_BRANCH), F.struct("*").alias(name))

    branches = [branch(outputs[name], f"_output_{index}") for index, name in enumerate(pipeline.outputs)]
    for rows in inputs.values():
        rule = F.col(RULE) if RULE in rows.columns else F.lit(None).cast("string").alias(RULE)
        aside = rows.select(RECORD, ERROR, POISON, rule).where(F.col(ERROR).isNotNull() | F.col(RULE).isNotNull())
        branches.append(branch(aside, _UNDECODED))
    branches += [branch(rows.select(RECORD, "error"), _FAILED) for rows in diverted.failures]
    return reduce(lambda one, two: one.unionByName(two, allowMissingColumns=True), branches)


@dataclass(frozen=True)
class _Aside:
    """The records that do not reach the function's state."""

    set_aside: Mapping[str, int] = field(default_factory=dict)
    """The quarantined records of each input."""
    broken: Mapping[str, int] = field(default_factory=dict)
    """The rows that break each rule of an input."""


class StatefulBatches:
    """Takes batches of a stateful stream to a pipeline's outputs."""

    def __init__(self, pipeline: Pipeline, outputs: Outputs, bootstrap: Bootstrap) -> None:
        self._pipeline = pipeline
        self._outputs = outputs
        self._bootstrap = bootstrap

    def process(self, rows: "DataFrame", batch_id: int) -> BatchReport:
        began_s = time.monotonic()
        repeated = self._outputs.repeated(batch_id)
        with ExitStack() as kept:
            work = Work()
            kept.callback(self._outputs.discard, work)
            rows, has_poison, of_outputs = self._stage(rows, batch_id, work)
            staged_s = time.monotonic()
            aside = self._set_aside(rows, batch_id) if has_poison else _Aside()
            self._outputs.commit(work, batch_id, repeated)
        spent = spent_on(work, began_s, staged_s, is_one_pass=True)
        remarks = self._outputs.tidy()
        duration_ms = round((time.monotonic() - began_s) * 1000)
        rules = outcomes(self._pipeline.rules, Counter(aside.broken) + Counter(of_outputs))
        return BatchReport(batch_id, None, work.rows, aside.set_aside, (), repeated, duration_ms, remarks, spent, rules)

    def _stage(self, rows: "DataFrame", batch_id: int, work: Work) -> "tuple[DataFrame, bool, Mapping[str, int]]":
        """Stages every output. Returns the rows, persisted; whether some of them are poison or break a rule of an
        input; and how many rows break each rule of an output. Raises RuleBroken.

        The stream's plan must run once, since it changes the state: the first output's job fills the cache and counts
        poison rows on the way.
        """
        from pyspark.sql import functions as F

        judged = JudgedOutputs(self._pipeline)
        with watching() as watched:
            poison = F.when(F.col(_BRANCH).isin(_UNDECODED, _FAILED), True)
            rows = counted(rows, "branches", poison).persist()
            work.kept.append(rows)
            branches = {
                name: self._branch(rows, f"_output_{index}") for index, name in enumerate(self._pipeline.outputs)
            }
            self._outputs.stage(judged.passing(branches), work, batch_id)
        of_outputs = judged.broken(watched)
        judged.check(of_outputs, batch_id)
        if work.failures:
            told, *_ = quarantine.origins_of(work.failures, 1).items()
            raise InvalidRows(f"{self._pipeline.name}: batch {batch_id}: {told[0]}: {told[1]}")
        if watched.holds:
            return rows, count_of(watched, "branches").failed > 0, of_outputs
        return rows, rows.where(poison.isNotNull()).limit(1).count() > 0, of_outputs

    def _set_aside(self, rows: "DataFrame", batch_id: int) -> _Aside:
        """Quarantines the failed records of a batch. Raises OverBudget and RuleBroken."""
        from pyspark.sql import functions as F

        undecoded = self._branch(rows, _UNDECODED)
        broken = self._broken(undecoded, batch_id)
        bad_rows = rows.where(F.col(f"{_UNDECODED}.{ERROR}").isNotNull() | (F.col(_BRANCH) == _FAILED))
        branches = bad_rows.groupBy(_BRANCH, F.col(f"{_UNDECODED}.{RECORD}.topic").alias("topic")).count().collect()
        topics = Counter({row["topic"]: row["count"] for row in branches if row[_BRANCH] == _UNDECODED})
        condemned = undecoded.where(F.col(ERROR).isNotNull()) if topics else None
        failed: dict[Origin, Why] = {}
        if any(row[_BRANCH] == _FAILED for row in branches):
            limit = min(self._pipeline.budget.rows, quarantine.MAX_ISOLATED) + 1
            failed = quarantine.origins_of([self._branch(rows, _FAILED)], limit)
        topics.update(origin.topic for origin in failed)
        samples = [*failed.items(), *(quarantine.samples(condemned) if condemned is not None else ())]
        quarantine.check_budget(self._pipeline, batch_id, None, topics.total(), samples, is_all=not failed)
        quarantine.check_isolated(self._pipeline, batch_id, len(failed))
        who = self._outputs.who(batch_id)
        aside = [] if condemned is None else quarantine.undecoded([condemned], who)
        if failed:
            aside.append(quarantine.failed(self._records(rows.sparkSession, failed), failed, who))
        if aside:
            self._outputs.quarantine(reduce(lambda one, two: one.unionByName(two), aside), batch_id)
        return _Aside(quarantine.by_input(self._pipeline, topics), broken)

    def _broken(self, undecoded: "DataFrame", batch_id: int) -> dict[str, int]:
        """How many rows break each rule of an input. Raises RuleBroken for a rule that fails the batch."""
        found = broken_in(undecoded) if any(each.expect for each in self._pipeline.inputs.values()) else {}
        for each in self._pipeline.inputs.values():
            for rule in each.expect:
                if rule.else_ is Else.FAIL and rule.name in found:
                    shown = shown_rows(undecoded, rule)
                    raise rule_broken(self._pipeline, f"input {each.name}", rule, found, batch_id, shown)
        return found

    def _branch(self, rows: "DataFrame", name: str) -> "DataFrame":
        from pyspark.sql import functions as F

        return rows.where(F.col(_BRANCH) == name).select(f"{name}.*")

    def _records(self, spark: "SparkSession", failed: Mapping[Origin, Why]) -> "DataFrame":
        """The records themselves, from the log: rows do not carry their bytes this far."""
        starts: dict[str, dict[str, int]] = {}
        ends: dict[str, dict[str, int]] = {}
        for topic, partition, offset in failed:
            first = starts.setdefault(topic, {})
            first[str(partition)] = min(first.get(str(partition), offset), offset)
            last = ends.setdefault(topic, {})
            last[str(partition)] = max(last.get(str(partition), 0), offset + 1)
        return (
            spark.read.format("cordwood")
            .options(**connection_options(self._bootstrap))
            .option("assign", json.dumps({topic: sorted(map(int, each)) for topic, each in starts.items()}))
            .option("startingOffsets", json.dumps(starts))
            .option("endingOffsets", json.dumps(ends))
            .option("includeHeaders", "true")
            .load()
        )
