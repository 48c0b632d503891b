"""One micro-batch, from the source's rows to every output, once.

A batch goes in one pass where it can: each output is one job of Spark from the log to the output, and records are
counted on the way. Nothing is cached, counted or read again first. Records that cannot be decoded never reach the
outputs, and are read once more for the quarantine. If a function fails on a row, or counts do not hold (`watching.py`),
the staged outputs are taken back and the batch goes step by step: inputs are kept, poison records are found and set
aside, and the outputs are made again, as often as it takes.

Either way the batch is invisible until every output is staged and the budget holds. Then it is committed: the
quarantine, then tables, then topics. Each of them keeps the batch's number with the batch and takes it once, so a batch
that was interrupted anywhere is repeated from the beginning and ends up in every output exactly once.
"""

import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import reduce
from typing import TYPE_CHECKING, Any, Final

from cordwood.pipelines.definition.definition import ERROR, POISON, RECORD, RULE, Pipeline
from cordwood.pipelines.definition.errors import InvalidRows, Refusal
from cordwood.pipelines.definition.expectations import Else
from cordwood.pipelines.definition.record_formats import ParsedBy
from cordwood.pipelines.editions.events import spent_in_batch
from cordwood.pipelines.editions.positions import Positions
from cordwood.pipelines.execution.blame import in_words, may_be_the_rows_fault
from cordwood.pipelines.execution.outputs import BatchOutputs, OtherPoison, Work
from cordwood.pipelines.execution.searching import PoisonSearch
from cordwood.pipelines.rows import quarantine
from cordwood.pipelines.rows.decoding import inputs_of
from cordwood.pipelines.rows.guarding import diverting
from cordwood.pipelines.rows.isolation import Origin
from cordwood.pipelines.rows.quarantine import Why
from cordwood.pipelines.rows.rules import (
    JudgedOutputs,
    RuleCounts,
    broken_in,
    counted_by_rule,
    outcomes,
    rule_broken,
    shown_rows,
)
from cordwood.pipelines.rows.spans import Span, within
from cordwood.pipelines.rows.watching import count_of, task_count, watching

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

_MAX_ROUNDS: Final = 20
"""The number of times that a batch is begun again after poison records were found in it."""
_BATCHES_BETWEEN_TRIES: Final = 50
"""Batches that go step by step after counts did not hold: the function's next plan is likely to be the same."""


@dataclass(frozen=True)
class BatchReport:
    """The outcome of a batch. `rows_out` includes outputs that an interrupted run had written before."""

    batch_id: int
    read: Mapping[str, int] | None
    """The records of each input; None if only Spark knows the number."""
    rows_out: Mapping[str, int]
    set_aside: Mapping[str, int]
    """The quarantined records of each input."""
    skipped: Sequence[str]
    """Outputs that a replay leaves out, because they are not replayable."""
    repeated: Sequence[str]
    """Tables that have this batch from an interrupted run."""
    duration_ms: int
    remarks: Sequence[str] = ()
    spent: Mapping[str, Any] = field(default_factory=dict)
    """The parts of the batch's time, in milliseconds (`events.py`)."""
    rules: RuleCounts = field(default_factory=dict)
    """The rows that break rules."""

    @property
    def rows_in(self) -> int | None:
        return None if self.read is None else sum(self.read.values())

    @property
    def quarantined(self) -> int:
        return sum(self.set_aside.values())


@dataclass(frozen=True)
class _Counted:
    """The counts of a batch."""

    read: Mapping[str, int]
    """By input."""
    undecoded: Mapping[str, int]
    """By input: records that cannot be decoded, or break a rule of the input that sets records aside."""
    broken: Counter[str]
    """By rule."""

    @property
    def rows_in(self) -> int:
        return sum(self.read.values())

    @property
    def bad(self) -> int:
        return sum(self.undecoded.values())


class Batches:
    """Takes batches of records through a pipeline's function to its outputs."""

    def __init__(
        self,
        pipeline: Pipeline,
        outputs: BatchOutputs,
        *,
        whole_partitions: bool = False,
        sets_aside: bool = False,
        check: Callable[[Exception], None] = lambda failure: None,
        searching: Callable[[int, str | None], None] = lambda batch_id, state: None,
    ) -> None:
        """With `whole_partitions`, the source gives all records of a partition to one task. With `sets_aside`, rows of
        outputs that would fail a batch go to quarantine where they can. `check` raises another failure in the place of
        one that no row is to blame for. `searching` gets the state of a search for poison records in words, and None at
        its end."""
        self._check = check
        self._searching = searching
        self._pipeline = pipeline
        self._sets_aside = sets_aside
        self._outputs = outputs
        self._whole_partitions = whole_partitions
        self._may_be_repeated = True
        self._steps_ahead = 0
        """How many batches go step by step before one pass is tried again."""

    def process(self, source: "DataFrame", batch_id: int, effects_from: Positions) -> BatchReport:
        """Takes one batch to its outputs. Raises a refusal or whatever Spark raises. A repetition skips outputs that
        were committed before the failure."""
        began_s = time.monotonic()
        repeated = self._outputs.repeated(batch_id)
        before = self._set_aside_before(source.sparkSession, batch_id)
        done = None
        if before is None and not self._steps_ahead and not (effects_from and self._effects_are_wanted):
            done = self._in_one_pass(source, batch_id, repeated, began_s)
        if done is None:
            self._steps_ahead = max(0, self._steps_ahead - 1)
            done = self._step_by_step(source, batch_id, repeated, before, effects_from, began_s)
            if done.quarantined:
                # Poison is likely in the next batch, too, and a pass that is taken back would only add to its time.
                self._steps_ahead = max(1, self._steps_ahead)
        return replace(done, remarks=self._outputs.tidy(), duration_ms=round((time.monotonic() - began_s) * 1000))

    # In one pass

    def _in_one_pass(
        self, source: "DataFrame", batch_id: int, repeated: Sequence[str], began_s: float
    ) -> BatchReport | None:
        """Tries the batch in one pass. Returns None, with nothing left staged, if the batch has to go step by step."""
        inputs = inputs_of(self._pipeline, source)
        work = Work()
        try:
            passed = self._stage_watched(inputs, source, batch_id, work)
            if passed is None:
                return None
            staged_s = time.monotonic()
            if passed.bad and not self._set_aside_undecoded(inputs, batch_id, passed.rows_in, passed.bad):
                return None
            self._outputs.commit(work, batch_id, repeated)
        finally:
            self._outputs.discard(work)
        spent = spent_on(work, began_s, staged_s, is_one_pass=True)
        rules = outcomes(self._pipeline.rules, passed.broken)
        skipped = self._outputs.skipped
        return BatchReport(batch_id, passed.read, work.rows, passed.undecoded, skipped, repeated, 0, (), spent, rules)

    def _stage_watched(
        self, inputs: "Mapping[str, DataFrame]", source: "DataFrame", batch_id: int, work: Work
    ) -> _Counted | None:
        """Stages every output and counts its inputs. Returns None if a row failed, a row of an output has its record
        set aside, or the counts do not hold. Raises RuleBroken."""
        several = len(self._outputs.wanted) > 1
        judged = self._judged()
        with watching() as watched, diverting(persist=several, count=True) as diverted:
            work.kept = diverted.kept
            rows = {
                name: counted_by_rule(each, f"input {name}", self._pipeline.inputs[name].expect)
                for name, each in inputs.items()
            }
            if several:
                # Without a cache each output would read and decode the log by itself.
                rows = {name: each.persist() for name, each in rows.items()}
                work.kept += rows.values()
            try:
                outputs = judged.passing(self._wanted(outputs_of(self._pipeline, good_rows(rows))))
                self._outputs.stage(outputs, work, batch_id, in_order=self._reads_in_order(source))
            except Exception as failure:
                if not self._may_be_the_rows_fault(failure):
                    raise
                return None
        if not watched.holds:
            self._steps_ahead = _BATCHES_BETWEEN_TRIES
            return None
        counts = {name: count_of(watched, f"input {name}") for name in inputs}
        of_inputs = {name: count.by_value for name, count in counts.items()}
        self._check_inputs(inputs, of_inputs, batch_id)
        of_outputs = judged.broken(watched)
        judged.check(of_outputs, batch_id)
        guarded = [count_of(watched, f"guarded {number}") for number in range(len(diverted.failures))]
        if work.failures or any(each.failed for each in guarded) or judged.failures(of_outputs):
            return None
        read = {name: each.rows for name, each in counts.items()}
        undecoded = {name: each.failed for name, each in counts.items() if each.failed}
        return _Counted(read, undecoded, sum(map(Counter, of_inputs.values()), Counter(of_outputs)))

    def _judged(self) -> JudgedOutputs:
        return JudgedOutputs(self._pipeline, self._sets_aside)

    def _wanted(self, outputs: "Mapping[str, DataFrame]") -> "dict[str, DataFrame]":
        return {name: outputs[name] for name in self._outputs.wanted}

    def _check_inputs(
        self, inputs: "Mapping[str, DataFrame]", of_inputs: Mapping[str, Mapping[str, int]], batch_id: int
    ) -> None:
        """Raises RuleBroken if a record breaks a rule that fails the batch."""
        for name, found in of_inputs.items():
            declared = self._pipeline.inputs[name]
            for rule in declared.expect:
                if rule.else_ is Else.FAIL and rule.name in found:
                    shown = shown_rows(inputs[name], rule)
                    raise rule_broken(self._pipeline, f"input {declared.name}", rule, found, batch_id, shown)

    def _set_aside_undecoded(self, inputs: "Mapping[str, DataFrame]", batch_id: int, rows_in: int, bad: int) -> bool:
        """Quarantines the records that could not be decoded. Returns False if the batch has to go step by step. Raises
        OverBudget."""
        formats = [each for topic in self._pipeline.inputs.values() for each in (topic.key, topic.value)]
        if any(isinstance(each, ParsedBy) for each in formats):
            return False  # a user's function might judge otherwise the second time
        if bad > self._pipeline.budget.allowed(rows_in):
            samples = [sample for rows in inputs.values() for sample in quarantine.samples(rows)]
            quarantine.check_budget(self._pipeline, batch_id, rows_in, bad, samples)
        aside = quarantine.undecoded(inputs.values(), self._outputs.who(batch_id), self._effects({}, f"{RECORD}."))
        try:
            self._outputs.quarantine(reduce(lambda one, two: one.unionByName(two), aside), batch_id, expected=bad)
        except OtherPoison:
            return False
        return True

    def _reads_in_order(self, source: "DataFrame") -> bool:
        return self._whole_partitions or task_count(source) == 1

    @property
    def _effects_are_wanted(self) -> bool:
        return any(not output.replayable for output in self._outputs.wanted.values())

    # Step by step

    def _step_by_step(
        self,
        source: "DataFrame",
        batch_id: int,
        repeated: Sequence[str],
        before: "DataFrame | None",
        effects_from: Positions,
        began_s: float,
    ) -> BatchReport:
        with ExitStack() as kept:
            if len(self._pipeline.inputs) > 1:
                source = _persisted(source, kept)
            inputs = {name: _persisted(rows, kept) for name, rows in inputs_of(self._pipeline, source).items()}
            count = self._count(inputs, batch_id)
            good = good_rows(inputs)
            if before is not None:
                # Records that were set aside stay aside though they may pass now: a requeue would bring them into the
                # outputs again.
                before = _persisted(before.distinct(), kept)
                good = {name: quarantine.without_those(rows, before) for name, rows in good.items()}
            work, poison, dropped = self._make(good, batch_id, count.rows_in, count.bad, effects_from)
            kept.callback(self._outputs.discard, work)
            staged_s = time.monotonic()
            who = self._outputs.who(batch_id)
            aside = []
            if count.bad:
                aside = quarantine.undecoded(inputs.values(), who, self._effects(effects_from, f"{RECORD}."))
            if poison:
                aside.append(quarantine.failed(source, poison, who, self._effects(effects_from, "")))
            if aside:
                self._outputs.quarantine(reduce(lambda one, two: one.unionByName(two), aside), batch_id)
            set_aside = self._by_input(count.undecoded, poison, before)
            self._outputs.commit(work, batch_id, repeated)
        spent = spent_on(work, began_s, staged_s, is_one_pass=False)
        condemned = Counter(why.rule for why in poison.values() if why.rule is not None)
        rules = outcomes(self._pipeline.rules, count.broken + condemned + Counter(dropped))
        skipped = self._outputs.skipped
        return BatchReport(batch_id, count.read, work.rows, set_aside, skipped, repeated, 0, (), spent, rules)

    def _by_input(
        self, undecoded: Mapping[str, int], poison: Mapping[Origin, Why], before: "DataFrame | None"
    ) -> dict[str, int]:
        """The quarantined records of each input. Those of an interrupted run are `before`."""
        if before is None:
            topics = Counter(origin.topic for origin in poison)
        else:
            undecoded = {}
            topics = Counter({row["topic"]: row["count"] for row in before.groupBy("topic").count().collect()})
        return dict(Counter(undecoded) + Counter(quarantine.by_input(self._pipeline, topics)))

    def _set_aside_before(self, spark: "SparkSession", batch_id: int) -> "DataFrame | None":
        """The records that an interrupted run of this batch quarantined. Only the first batch of a query may be
        repeated."""
        may_be_repeated, self._may_be_repeated = self._may_be_repeated, False
        return self._outputs.set_aside_before(spark, batch_id) if may_be_repeated else None

    def _effects(self, effects_from: Positions, address: str) -> "Column | None":
        """The `cordwood.effects` header of records that are set aside: their effects were had, or are due at a
        requeue."""
        from pyspark.sql import functions as F

        if not self._effects_are_wanted:
            return None
        return F.when(_before(effects_from, address), quarantine.EFFECTS_HAD).otherwise(quarantine.EFFECTS_DUE)

    def _count(self, inputs: "Mapping[str, DataFrame]", batch_id: int) -> _Counted:
        """Counts the records of each input by a job of its own. Raises OverBudget and RuleBroken."""
        from pyspark.sql import functions as F

        read: dict[str, int] = {}
        undecoded: dict[str, int] = {}
        of_inputs: dict[str, Mapping[str, int]] = {}
        samples: list[tuple[Origin, str]] = []
        for name, rows in inputs.items():
            (counted,) = rows.agg(F.count(F.lit(1)).alias("rows"), F.count(ERROR).alias("bad")).collect()
            read[name] = counted["rows"]
            if counted["bad"]:
                undecoded[name] = counted["bad"]
            of_inputs[name] = broken_in(rows) if RULE in rows.columns else {}
            if counted["bad"] and len(samples) < quarantine.SHOWN:
                samples += quarantine.samples(rows)
        self._check_inputs(inputs, of_inputs, batch_id)
        found = _Counted(read, undecoded, sum(map(Counter, of_inputs.values()), Counter()))
        quarantine.check_budget(self._pipeline, batch_id, found.rows_in, found.bad, samples)
        return found

    # Calling the function, and finding the records that it fails on

    def _make(
        self, good: "Mapping[str, DataFrame]", batch_id: int, rows_in: int, bad: int, effects_from: Positions
    ) -> tuple[Work, dict[Origin, Why], Mapping[str, int]]:
        """Stages every output without the poison records. Returns the poison records that it found, and how many rows
        break rules of outputs that drop rows."""
        poison: dict[Origin, Why] = {}
        searched = 0
        left = min(self._pipeline.budget.allowed(rows_in) - bad, quarantine.MAX_ISOLATED)
        for _ in range(_MAX_ROUNDS):
            rows = {name: quarantine.without(each, poison) for name, each in good.items()}
            work = Work()
            found: dict[Origin, Why] = {}
            try:
                dropped = self._stage(rows, batch_id, effects_from, work)
                found = quarantine.origins_of(work.failures, left - len(poison) + 1)
            except Exception as failure:
                self._outputs.discard(work)
                if not self._may_be_the_rows_fault(failure):
                    raise
                found = self._searched(rows, batch_id, rows_in, left - len(poison))
                if not found:
                    raise
                searched += len(found)
                quarantine.check_searched(self._pipeline, batch_id, searched)
            else:
                if not found:
                    return work, poison, dropped
                self._outputs.discard(work)
            poison.update(found)
            samples = list(poison.items())
            quarantine.check_budget(self._pipeline, batch_id, rows_in, bad + len(poison), samples, is_all=False)
            quarantine.check_isolated(self._pipeline, batch_id, len(poison))
        raise InvalidRows(f"{self._pipeline.name}: batch {batch_id} still fails without {len(poison)} poison records")

    def _stage(
        self, inputs: "Mapping[str, DataFrame]", batch_id: int, effects_from: Positions, work: Work
    ) -> Mapping[str, int]:
        """Stages every output, and returns how many of its rows break each rule. Rows that fail are in
        `work.failures`. Raises RuleBroken."""
        effects = [name for name, output in self._outputs.wanted.items() if not output.replayable]
        with diverting(persist=True) as diverted:
            work.failures, work.kept = diverted.failures, diverted.kept
            outputs = outputs_of(self._pipeline, inputs)
            if effects and effects_from and _has_rows_before(inputs, effects_from):
                # Some of these records had their effects while another edition was live: this edition repeats none.
                rest = {name: rows.where(~_before(effects_from)) for name, rows in inputs.items()}
                ours = outputs_of(self._pipeline, rest)
                outputs.update({name: ours[name] for name in effects})
        judged = self._judged()
        with watching() as watched:
            passing = judged.passing(self._wanted(outputs))
            self._outputs.stage(passing, work, batch_id)
        of_outputs = judged.broken(watched)
        judged.check(of_outputs, batch_id)
        work.failures += judged.failures(of_outputs)
        return of_outputs

    def _searched(
        self, inputs: "Mapping[str, DataFrame]", batch_id: int, rows_in: int, limit: int
    ) -> dict[Origin, Why]:
        """The records that the function fails on, found by trying it on parts of the batch."""

        def told(state: str) -> None:
            self._searching(batch_id, state)

        try:
            found = PoisonSearch(self._failure, inputs, rows_in, told).find(min(limit, quarantine.MAX_SEARCHED))
        finally:
            self._searching(batch_id, None)
        return {origin: Why(error) for origin, error in found.items()}

    def _failure(self, inputs: "Mapping[str, DataFrame]") -> str | None:
        """The error that the function, or a rule of an output, raises on these rows, or None."""
        with diverting(persist=False):
            try:
                judged = JudgedOutputs(self._pipeline, count=False)
                for rows in judged.passing(outputs_of(self._pipeline, inputs)).values():
                    rows.write.format("noop").mode("overwrite").save()
            except Exception as failure:
                # A job that was cancelled, or a broker that is away, says nothing about the records.
                if not self._may_be_the_rows_fault(failure):
                    raise
                return in_words(failure)
        return None

    def _may_be_the_rows_fault(self, failure: Exception) -> bool:
        self._check(failure)
        return not isinstance(failure, Refusal) and may_be_the_rows_fault(failure)


def good_rows(inputs: "Mapping[str, DataFrame]") -> "dict[str, DataFrame]":
    """The rows that could be decoded and break no rule: the function's inputs."""
    good = {}
    for name, rows in inputs.items():
        meets = f"{ERROR} is null and {RULE} is null" if RULE in rows.columns else f"{ERROR} is null"
        good[name] = rows.where(meets).drop(ERROR, POISON, RULE)
    return good


def outputs_of(pipeline: Pipeline, inputs: "Mapping[str, DataFrame]") -> "dict[str, DataFrame]":
    """Calls the function and returns its rows by output. Refuses a result that differs from the declaration."""
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


def spent_on(work: Work, began_s: float, staged_s: float, *, is_one_pass: bool) -> dict[str, Any]:
    """The parts of the time of a batch that was begun and staged at these times and is committed now."""
    staging_ms, commit_ms = round((staged_s - began_s) * 1000), round((time.monotonic() - staged_s) * 1000)
    return spent_in_batch(work.spent, staging_ms=staging_ms, commit_ms=commit_ms, is_one_pass=is_one_pass)


def _persisted(rows: "DataFrame", kept: ExitStack) -> "DataFrame":
    persisted = rows.persist()
    kept.callback(persisted.unpersist)
    return persisted


def _before(positions: Positions, address: str = f"{RECORD}.") -> "Column":
    return within(
        [Span(topic, partition, 0, end) for topic, each in positions.items() for partition, end in each.items()],
        address,
    )


def _has_rows_before(inputs: "Mapping[str, DataFrame]", positions: Positions) -> bool:
    return any(rows.where(_before(positions)).limit(1).count() for rows in inputs.values())
