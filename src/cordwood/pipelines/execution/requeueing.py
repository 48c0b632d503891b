"""Sends quarantined records through the function again, each once, as one numbered batch of its own.

A requeue first writes its plan: the records to send. Then the records go through the function into the outputs, under
the requeue's number; then the plan is marked as done. The next requeue finishes one that was interrupted, as it was
planned. Records that fail again go back to quarantine, as new records there.

A requeued record is written after records that are newer. In a table with a key it could put an old row in the place of
a newer one. So a record is superseded, and stays in quarantine, if a record with the same key was read after it from
the same partition. The plan decides which records are superseded: nothing may be read between the plan and its end, and
no batch may be half done. `run` refuses while a requeue is unfinished, `requeue` while a batch is.
"""

import json
from collections import Counter
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from cordwood.client.bootstrap import Bootstrap
from cordwood.pipelines.definition.definition import Pipeline
from cordwood.pipelines.definition.errors import WrongState
from cordwood.pipelines.editions.checkpoint import committed_position, unfinished_batch
from cordwood.pipelines.editions.editions import Edition, PipelineState
from cordwood.pipelines.editions.events import SET_ASIDE
from cordwood.pipelines.editions.made_outputs import note_batches
from cordwood.pipelines.editions.positions import Positions
from cordwood.pipelines.editions.requeue_plan import OffsetSet, RequeuePlan, read_plan, write_plan
from cordwood.pipelines.editions.switches import pending
from cordwood.pipelines.execution.batches import Batches, BatchReport
from cordwood.pipelines.execution.checking_rules import check_rules
from cordwood.pipelines.execution.outputs import Outputs
from cordwood.pipelines.execution.progress import progress_path
from cordwood.pipelines.execution.reading_here import log_starts, topic_ids
from cordwood.pipelines.execution.running import place_of
from cordwood.pipelines.rows.isolation import Origin
from cordwood.pipelines.rows.quarantine import EFFECTS_DUE, PREFIX, SHOWN, told
from cordwood.pipelines.rows.rules import RuleCounts, added, forgiving
from cordwood.spark.options.security import connection_options

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

MAX_RECORDS: Final = 10_000
"""The most records of one requeue, which the driver lists. Another requeue takes more."""
_SERIES: Final = "requeue "
"""Begins the number of a requeue in the header of quarantined records."""


@dataclass(frozen=True)
class Requeued:
    sent: int
    failed_again: int
    superseded: Sequence[Origin]
    left: bool
    """True if more records remain."""
    rows_out: Mapping[str, int]
    reasons: Sequence[tuple[Origin, str]] = ()
    """Errors of a few of the records that failed again."""
    rules: RuleCounts = field(default_factory=dict)
    """The rows that break rules."""
    passed: Mapping[str, int] = field(default_factory=dict)
    """The records of each input that did not fail again."""


def check_requeue_is_possible(pipeline: Pipeline, state: PipelineState, edition: Edition) -> None:
    """Raises WrongState if a requeue is not possible. Commands ask before they start Spark."""
    if pipeline.settings.stateful:
        raise WrongState(
            f"{pipeline.name} is stateful: a record cannot go through its state later than it came",
            f"`cordwood pipeline replay {pipeline.name}` builds the outputs anew",
        )
    if edition.query_id is None:
        raise WrongState(f"edition {edition.name} of {pipeline.name} has not run yet")
    if read_plan(state, edition.name).pending is not None:
        return  # an interrupted requeue is finished first, as it was planned
    live = state.live()
    waiting = None if live is None else pending(live.switches)
    if waiting is not None:
        raise WrongState(
            f"readers of {pipeline.name} are still to go over from edition {waiting.before} to {waiting.now}: records "
            "that are sent through again now would reach none of them",
            f"`cordwood pipeline run {pipeline.name} --once` takes {waiting.now} there first",
        )
    batch = unfinished_batch(state.checkpoint(edition.name))
    if batch is not None:
        raise WrongState(
            f"edition {edition.name} of {pipeline.name} has begun batch {batch} and not finished it: "
            "records that are sent through again now would come before older ones",
            f"`cordwood pipeline run {pipeline.name} --once` finishes it first",
        )


@dataclass(frozen=True)
class Chosen:
    """The records that a requeue would send."""

    records: Sequence[Origin]
    superseded: Sequence[Origin]
    left: bool
    """True if more records remain."""
    begun: bool
    """True if these are the records of an interrupted requeue, which is finished first, as it was planned."""


class _Candidate(NamedTuple):
    partition: int
    offset: int
    origin: Origin
    has_key: bool
    effects_due: bool


class Requeue:
    """The requeues of one edition. The caller holds the edition's lock."""

    def __init__(
        self, spark: "SparkSession", pipeline: Pipeline, state: PipelineState, edition: Edition, bootstrap: Bootstrap
    ) -> None:
        check_requeue_is_possible(pipeline, state, edition)
        assert edition.query_id is not None
        self._spark = spark
        self._pipeline = pipeline
        self._state = state
        self._edition = edition
        self._query_id = edition.query_id
        self._bootstrap = bootstrap

    def run(self, *, superseded: bool) -> Requeued:
        """Sends quarantined records, with `superseded` also the superseded ones."""
        check_rules(self._pipeline, self._spark)
        done = self._run(superseded=superseded)
        if done.failed_again:
            done = replace(done, reasons=self._reasons())
        self._note(done)
        return done

    def would_run(self, *, superseded: bool) -> Chosen:
        """The records that `run` would send now. Changes nothing."""
        plan = self._as_of_now(read_plan(self._state, self._edition.name))
        if plan is None:
            return Chosen((), (), left=False, begun=False)
        if plan.pending is not None:
            begun = self._addresses(_among(self._quarantined(), plan.pending, "left_semi"))
            return Chosen(sorted({each.origin for each in begun}), (), left=False, begun=True)
        candidates, passed_over, left = self._choose(plan.done, superseded=superseded)
        return Chosen(sorted({each.origin for each in candidates}), passed_over, left=left, begun=False)

    def _run(self, *, superseded: bool) -> Requeued:
        check_requeue_is_possible(self._pipeline, self._state, self._edition)
        kept = read_plan(self._state, self._edition.name)
        plan = self._as_of_now(kept)
        if plan is None or plan.topic_id != kept.topic_id:
            # A requeue that is pending in a deleted topic must not keep the pipeline from running.
            write_plan(self._state, self._edition.name, plan or RequeuePlan(kept.number))
        if plan is None:
            return Requeued(0, 0, (), False, {})
        if plan.pending is not None:
            return _together([self._finished(plan)], (), left=False)
        candidates, passed_over, left = self._choose(plan.done, superseded=superseded)
        reports = []
        # Effects are settled for a whole batch, by position: records whose effects are due go in a batch of their own.
        for due in (True, False):
            group = [(each.partition, each.offset) for each in candidates if each.effects_due is due]
            if group:
                plan = replace(plan, number=plan.number + 1, pending=OffsetSet().with_offsets(group))
                write_plan(self._state, self._edition.name, plan)
                reports.append(self._finished(plan))
                plan = read_plan(self._state, self._edition.name)
        return _together(reports, passed_over, left=left)

    def _reasons(self) -> list[tuple[Origin, str]]:
        """The errors of the records that the last requeues have quarantined again, newest first."""
        from pyspark.sql import functions as F

        rows = self._quarantined().where((F.col("_query") == self._query_id) & F.col("_batch").startswith(_SERIES))
        newest = rows.orderBy(F.desc("timestamp"), F.desc("offset")).limit(SHOWN)
        found = newest.select("_topic", "_partition", "_offset", "_error").collect()
        return [(Origin(row["_topic"], row["_partition"], row["_offset"]), row["_error"]) for row in found]

    def _note(self, done: Requeued) -> None:
        """Subtracts the records that reached the outputs from the edition's count of quarantined records."""
        path = progress_path(self._state, self._edition.name)
        before = self._state.files.read(path)
        if before is not None and done.sent > done.failed_again:
            left = max(0, before.get("quarantined", 0) - done.sent + done.failed_again)
            by_input = {
                name: max(0, count - done.passed.get(name, 0)) for name, count in before.get(SET_ASIDE, {}).items()
            }
            self._state.files.replace(path, {**before, "quarantined": left, SET_ASIDE: by_input})

    def _finished(self, plan: RequeuePlan) -> BatchReport:
        assert plan.pending is not None
        report = self._send(plan.number, plan.pending)
        finished = replace(plan, done=plan.done.union(plan.pending), pending=None)
        write_plan(self._state, self._edition.name, finished)
        return report

    def _as_of_now(self, plan: RequeuePlan) -> RequeuePlan | None:
        """The plan as it holds now: empty if the quarantine topic was deleted and made again, None if the topic is
        gone. Deleted records are not sent any more."""
        ids = topic_ids(self._bootstrap, [self._pipeline.quarantine_topic])
        topic_id = ids.get(self._pipeline.quarantine_topic)
        if ids and plan.topic_id in (None, topic_id):
            return replace(plan, topic_id=topic_id)
        return RequeuePlan(plan.number, topic_id=topic_id) if ids else None

    def _choose(self, done: OffsetSet, *, superseded: bool) -> tuple[list[_Candidate], list[Origin], bool]:
        """The records to send, the superseded ones, and whether more remain. Superseded records are skipped, however
        many there are: they must not block the others."""
        by_key = not superseded and any(table.key for table in self._pipeline.tables.values())
        passed_over: set[Origin] = set()
        while True:
            found = self._candidates(done)
            left, found = len(found) > MAX_RECORDS, found[:MAX_RECORDS]
            older = self._superseded(found) if by_key else set()
            passed_over |= older
            chosen = [each for each in found if each.origin not in older]
            if chosen or not left:
                return chosen, sorted(passed_over), left
            done = done.with_offsets((each.partition, each.offset) for each in found)

    def _candidates(self, done: OffsetSet) -> list[_Candidate]:
        from pyspark.sql import functions as F

        rows = _among(self._quarantined(), done, "left_anti").where(F.col("_query") == self._query_id)
        return self._addresses(rows)

    def _addresses(self, rows: "DataFrame") -> list[_Candidate]:
        """The first quarantined records in `rows`: one more than a requeue sends."""
        from pyspark.sql import functions as F

        has_key = F.col("key").isNotNull().alias("has_key")
        addresses = rows.select("partition", "offset", "_topic", "_partition", "_offset", "_effects_due", has_key)
        found = addresses.orderBy("partition", "offset").limit(MAX_RECORDS + 1).collect()
        return [
            _Candidate(
                row["partition"],
                row["offset"],
                Origin(row["_topic"], row["_partition"], row["_offset"]),
                row["has_key"],
                row["_effects_due"],
            )
            for row in found
        ]

    def _superseded(self, candidates: Sequence[_Candidate]) -> set[Origin]:
        """The candidates that a record with the same key follows in the same partition. For a candidate without a key,
        and where retention has removed records after it, any later record counts. A candidate from a topic that the
        edition has left for another one counts as followed."""
        from pyspark.sql import functions as F

        position = committed_position(self._state.checkpoint(self._edition.name))
        first_left = log_starts(self._bootstrap, {each.origin.topic for each in candidates})
        superseded: set[Origin] = set()
        asked: list[_Candidate] = []
        for each in candidates:
            topic, partition, offset = each.origin
            if topic not in position:
                # The edition has gone over to another topic: what it read there may be later records of the same keys.
                superseded.add(each.origin)
                continue
            if offset + 1 >= position.get(topic, {}).get(partition, 0):
                continue
            if offset + 1 < first_left.get(topic, {}).get(partition, 0):
                superseded.add(each.origin)
            else:
                asked.append(each)
        if not asked:
            return superseded
        later = self._later({each.origin for each in asked}, position)
        chosen = OffsetSet().with_offsets((each.partition, each.offset) for each in asked)
        places = _among(self._quarantined(), chosen, "left_semi").selectExpr(
            "_topic as topic", "_partition as partition", "_offset as asked", "key"
        )
        found = later.join(F.broadcast(places), ["topic", "partition", "key"])
        if not all(each.has_key for each in asked):
            last = later.groupBy("topic", "partition").agg(F.max("later").alias("later"))
            found = found.unionByName(
                last.join(F.broadcast(places.where("key is null")), ["topic", "partition"]).select(*found.columns)
            )
        rows = found.where(F.col("later") > F.col("asked")).select("topic", "partition", "asked").distinct().collect()
        return superseded | {Origin(*row) for row in rows}

    def _later(self, after: Set[Origin], position: Positions) -> "DataFrame":
        """The records after these, in their partitions, that the edition has read."""
        from pyspark.sql import functions as F

        starts: dict[str, dict[str, int]] = {}
        ends: dict[str, dict[str, int]] = {}
        for topic, partition, offset in after:
            known = starts.setdefault(topic, {})
            known[str(partition)] = min(known.get(str(partition), offset + 1), offset + 1)
            ends.setdefault(topic, {})[str(partition)] = position[topic][partition]
        rows: DataFrame = (
            self._reader()
            .option("assign", json.dumps({topic: sorted(map(int, each)) for topic, each in starts.items()}))
            .option("startingOffsets", json.dumps(starts))
            .option("endingOffsets", json.dumps(ends))
            .option("failOnDataLoss", "false")
            .load()
        )
        return rows.select("topic", "partition", F.col("offset").alias("later"), "key")

    def _send(self, number: int, chosen: OffsetSet) -> BatchReport:
        """Sends the original records through the function and into the outputs."""
        from pyspark.sql import functions as F

        rows = _among(self._quarantined(), chosen, "left_semi")
        # A record that failed, was requeued and failed again may be in quarantine twice: it is sent once.
        newest = rows.groupBy("_topic", "_partition", "_offset").agg(
            F.max_by(F.struct("key", "value", "headers", "_timestamp"), F.struct("partition", "offset")).alias("r")
        )
        source = newest.select(
            F.col("r.key").alias("key"),
            F.col("r.value").alias("value"),
            F.col("_topic").alias("topic"),
            F.col("_partition").alias("partition"),
            F.col("_offset").alias("offset"),
            F.timestamp_millis(F.col("r._timestamp")).alias("timestamp"),
            F.filter(F.col("r.headers"), lambda header: ~header["key"].startswith(PREFIX)).alias("headers"),
        )
        # A requeue that fails stays pending, and `run` refuses meanwhile: records go back to quarantine instead.
        pipeline = forgiving(self._pipeline, len(chosen))
        place = place_of(self._state, self._edition, self._bootstrap)
        outputs = Outputs(pipeline, place, self._query_id, replaying=False, requeue=True)
        live = self._state.live()
        # Records that a replay set aside may have had their effects from the edition that was live then. Records that
        # an edition set aside while it was live have had none, however far other editions have come since.
        effects_from = live.effects_from if live is not None and live.edition == self._edition.name else {}
        if effects_from and rows.where("_effects_due").limit(1).count():
            effects_from = {}
        report = Batches(pipeline, outputs, sets_aside=True).process(source, number, effects_from)
        note_batches(self._state, self._edition.name, outputs.taken)
        return report

    def _quarantined(self) -> "DataFrame":
        from pyspark.sql import functions as F

        rows: DataFrame = (
            self._reader()
            .option("subscribe", self._pipeline.quarantine_topic)
            .option("startingOffsets", "earliest")
            .option("includeHeaders", "true")
            .load()
        )
        return rows.select(
            "key",
            "value",
            "partition",
            "offset",
            "headers",
            "timestamp",
            told("error").alias("_error"),
            told("batch").alias("_batch"),
            told("query").alias("_query"),
            told("topic").alias("_topic"),
            told("partition").cast("int").alias("_partition"),
            told("offset").cast("long").alias("_offset"),
            F.coalesce(told("effects") == EFFECTS_DUE, F.lit(False)).alias("_effects_due"),
            told("timestamp").cast("long").alias("_timestamp"),
        ).where(F.col("_offset").isNotNull())

    def _reader(self) -> Any:
        return (
            self._spark.read.format("cordwood")
            .options(**connection_options(self._bootstrap))
            .option("kafka.isolation.level", "read_committed")
        )


def _together(reports: Sequence[BatchReport], superseded: Sequence[Origin], *, left: bool) -> Requeued:
    rows_out: Counter[str] = Counter()
    for report in reports:
        rows_out.update(report.rows_out)
    rules: RuleCounts = {}
    for report in reports:
        rules = added(rules, report.rules)
    sent = sum(report.rows_in or 0 for report in reports)
    failed_again = sum(report.quarantined for report in reports)
    passed: Counter[str] = Counter()
    for report in reports:
        passed.update(report.read or {})
        passed.subtract(report.set_aside)
    return Requeued(sent, failed_again, superseded, left, rows_out, rules=rules, passed=passed)


def _among(rows: "DataFrame", chosen: OffsetSet, how: str) -> "DataFrame":
    """The rows at these offsets (left_semi), or all other rows (left_anti)."""
    from pyspark.sql import functions as F

    ranges = [(partition, *each) for partition, several in chosen.ranges.items() for each in several]
    listed = rows.sparkSession.createDataFrame(ranges, "_p int, _start long, _end long")
    inside = (F.col("offset") >= F.col("_start")) & (F.col("offset") < F.col("_end"))
    return rows.join(F.broadcast(listed), (F.col("partition") == F.col("_p")) & inside, how)
