"""Runs a pipeline's query in this process: starts it, reports its batches, ends it between two of them.

    from cordwood.pipelines import start
    running = start(orders, spark, bootstrap_servers="localhost:9092")     # a StreamingQuery is running.query
    running.wait()

`cordwood pipeline run` does no more in its worker, so your own program, or spark-submit, lacks only the supervision.
"""

import os
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final

from cordwood.client.bootstrap import Bootstrap
from cordwood.pipelines.definition.definition import Pipeline
from cordwood.pipelines.definition.errors import WrongState
from cordwood.pipelines.editions import checkpoint
from cordwood.pipelines.editions.checkpoint import note_begun
from cordwood.pipelines.editions.editions import Edition, PipelineState
from cordwood.pipelines.editions.events import SET_ASIDE, Tell, say
from cordwood.pipelines.editions.following import bound
from cordwood.pipelines.editions.live_edition import adopting, is_to_make_topics, locked_live_edition
from cordwood.pipelines.editions.made_outputs import noted_batches, noted_tables
from cordwood.pipelines.editions.planned import PlannedBatches, read_kept
from cordwood.pipelines.editions.positions import Positions, ahead
from cordwood.pipelines.editions.project import Project
from cordwood.pipelines.editions.requeue_plan import read_plan
from cordwood.pipelines.editions.run_lock import RunLock
from cordwood.pipelines.execution.batch_limits import BatchLimits
from cordwood.pipelines.execution.batches import Batches, BatchReport
from cordwood.pipelines.execution.checking_rules import check_rules
from cordwood.pipelines.execution.legs import Leg, Route
from cordwood.pipelines.execution.made_outputs import MadeOutputs
from cordwood.pipelines.execution.outputs import Outputs, Place
from cordwood.pipelines.execution.pacing import Pace
from cordwood.pipelines.execution.progress import SearchNews, note_progress
from cordwood.pipelines.execution.python_memory import KilledPython
from cordwood.pipelines.execution.sources import reads_whole_partitions, source_stream
from cordwood.pipelines.execution.spark_jobs import waits_for_cores
from cordwood.pipelines.execution.spark_progress import (
    of_batches,
    offsets_left,
    records_read,
    rows_too_late,
    sparks_own_ms,
)
from cordwood.pipelines.execution.stateful import StatefulBatches, one_stream
from cordwood.pipelines.formats.places import noted_as
from cordwood.pipelines.tables.staged import Change

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

_LOOK_S: Final = 0.2
_NEWS_S: Final = 1.0
"""How often a run looks whether another query is to go on."""
_COMMIT_S: Final = 15.0
"""How long to wait for Spark to note that a batch is done, before the query is stopped anyway."""


class Ending(StrEnum):
    """Why a query ended."""

    DONE = "all that there was is read"
    STOPPED = "stopped"
    SWAPPED = "ended by a swap"
    NEXT_LEG = "goes on with other topics"
    """The run goes on; no event has this."""


class Ended(Exception):
    """Raised in the query to end it before a batch; not a failure."""


class Running:
    """A running query. `wait` must be called: it reports batches and ends the query when asked to."""

    def __init__(
        self,
        pipeline: Pipeline,
        state: PipelineState,
        edition: Edition,
        spark: "SparkSession",
        *,
        bootstrap: Bootstrap,
        once: bool,
        tell: Tell,
        lock: RunLock | None = None,
        before_batch: Callable[[int], None] = lambda batch_id: None,
        killed: KilledPython | None = None,
        pace: Pace | None = None,
    ) -> None:
        """`lock` is released when the query ends. `before_batch` is called in the query with the number of each
        batch. `killed`: the Python processes that a supervisor has killed."""
        live = state.live()
        assert live is not None
        self._pipeline = pipeline
        self._state = state
        self._edition = edition
        self._tell = tell
        self._lock = lock
        self._before_batch = before_batch
        self._pace = pace or Pace()
        self._replaying = live.edition != edition.name
        self._spark = spark
        self._once = once
        self._bootstrap = bootstrap
        self._place = place_of(state, edition, bootstrap)
        self._checkpoint = state.checkpoint(edition.name)
        directory = state.edition_directory(edition.name)
        self._planned = PlannedBatches(pipeline.name, directory, self._checkpoint, state.files)
        self._process: Callable[[DataFrame, int], BatchReport] | None = None
        self._in_batch = threading.Lock()
        self._limits = BatchLimits(pipeline.settings.batch_deadline_ms, killed)
        self._stop = threading.Event()
        self._ending: Ending | None = None
        self._failure: BaseException | None = None
        self._outputs: Outputs | None = None
        self._reports: dict[int, BatchReport] = {}
        self._changes: dict[int, Mapping[str, Change]] = {}
        """The changes of each batch to the files of tables."""
        self._lag: int | None = None
        self._has_done_a_batch = False
        self._searching = SearchNews(state, edition.name, self.who, tell)
        self._check_checkpoint()
        self._check_requeue()
        check_rules(pipeline, spark)
        self._made_outputs = MadeOutputs(pipeline, state, edition.name, self._place.tables, bootstrap)
        self._made_outputs.check()
        self._route = Route(Project(state.directory.parent, state.files), state, pipeline, bootstrap, self._edition)
        self._looked_s = 0.0
        self._start_leg(self._route.next_leg())
        edition = self._edition
        try:
            if edition.query_id is None:
                self._route.edition = self._edition = state.note_query(edition, self.query.id)
            tell({**self.who, "event": "started", "replaying": self._replaying, "pid": os.getpid()})
        except BaseException:
            # No caller would wait for the query, and the edition's lock is about to be released.
            self.query.stop()
            raise

    def stop(self) -> None:
        """Ends the query after the batch that is under way. Returns at once; `wait` returns when it is done."""
        self._stop.set()

    def wait(self) -> Ending:
        """Waits for the query's end and returns its reason. Raises the query's failure."""
        try:
            self._wait_for_leg()
            while self._goes_on():
                self._wait_for_leg()
        finally:
            # An interrupt of `wait` leaves the query running: it still runs this edition, and keeps the lock.
            if self._lock is not None and not self.query.isActive:
                self._lock.release()
        if self._failure is not None and not isinstance(self._failure, Ended):
            raise self._limits.overdue or self._failure
        failure = self.query.exception()
        if failure is not None and self._failure is None:
            raise failure
        ending = self._ending or Ending.DONE
        self._tell({**self.who, "event": "ended", "reason": ending.value})
        return ending

    def _wait_for_leg(self) -> None:
        while self.query.isActive:
            if self._reports:
                self._tell_batches(self._progress())
            self._check_deadline()
            if self._stop.wait(_LOOK_S):
                self._end(Ending.STOPPED)
            elif self._leg_is_over():
                self._end(Ending.NEXT_LEG)
        self._tell_batches(self._progress(), all_of_them=True)

    def _leg_is_over(self) -> bool:
        """True if the query is to end for another one. Looks now and then: reading the checkpoint costs something."""
        now_s = time.monotonic()
        if now_s - self._looked_s < _NEWS_S:
            return False
        self._looked_s = now_s
        try:
            return self._route.is_over(self._leg)
        except BaseException:
            self._end(Ending.NEXT_LEG)
            raise

    def _goes_on(self) -> bool:
        """Starts the query of the next leg, if there is one. Called when a query has ended."""
        has_read_all = self._ending is None and self._once
        if not has_read_all and self._ending is not Ending.NEXT_LEG:
            return False
        if isinstance(self._failure, Ended):
            self._failure = None
        elif self._failure is not None or self.query.exception() is not None:
            return False
        ended = self._leg
        leg = self._route.next_leg()
        if has_read_all and (leg == ended or (ended.is_last and leg.is_last)):
            return False
        self._ending = None
        self._start_leg(leg)
        return True

    @property
    def has_done_a_batch(self) -> bool:
        return self._has_done_a_batch

    @property
    def who(self) -> dict[str, Any]:
        """The fields about the query that every event has."""
        return {
            "pipeline": self._pipeline.name,
            "edition": self._edition.name,
            "version": self._pipeline.version,
        }

    @property
    def lag(self) -> int | None:
        """Committed records that were unread when the last batch was done."""
        return self._lag

    # In the query

    def _start_leg(self, leg: Leg) -> None:
        """Starts the query of this leg. Batches of the leg before are told."""
        self._leg = leg
        self._process = None
        self._route.edition = self._edition = self._with_inputs(leg.pipeline)
        self.query = self._start(leg)

    def _start(self, leg: Leg) -> "StreamingQuery":
        from cordwood.pipelines.execution.reading_here import partition_count

        pipeline, spark = leg.pipeline, self._spark
        settings = pipeline.settings
        partitions = partition_count(self._bootstrap, [topic.name for topic in pipeline.inputs.values()])
        cores = spark.sparkContext.defaultParallelism
        self._whole_partitions = reads_whole_partitions(pipeline, partitions, cores)
        rows = source_stream(
            pipeline,
            spark,
            bootstrap=self._bootstrap,
            starting=self._edition.starting,
            whole_partitions=self._whole_partitions,
            stop_at=leg.stop_at,
            continue_at=leg.continue_at,
        )
        stream = one_stream(pipeline, rows) if settings.stateful else rows
        writer = (
            stream.writeStream.foreachBatch(self._batch)
            .outputMode(settings.output_mode.value)
            .queryName(f"{self._pipeline.name}.{self._edition.name}")
            .option("checkpointLocation", str(self._checkpoint))
        )
        writer = writer.trigger(availableNow=True) if self._once else writer.trigger(processingTime=settings.trigger)
        return writer.start()

    def _batch(self, rows: "DataFrame", batch_id: int) -> None:
        try:
            self._pace.wait(self._stop)
            with self._in_batch:
                self._check_wanted()
                self._limits.begun(batch_id)
                self._before_batch(batch_id)
                self._made_outputs.check()
                self._planned.check(batch_id)
                if self._process is None:
                    query_id = rows.sparkSession.sparkContext.getLocalProperty("sql.streaming.queryId")
                    assert query_id is not None
                    self._process = self._made(query_id)
                report = self._process(rows, batch_id)
                assert self._outputs is not None
                self._made_outputs.batch_done(self._outputs.skipped, self._outputs.taken)
                self._pace.has_read(report.rows_in)
                self._changes[batch_id] = self._outputs.changes
                self._reports[batch_id] = report
        except BaseException as failure:
            self._failure = self._limits.explained(failure)
            # Spark copies the message into ever longer ones and searches them; `wait` raises the whole failure.
            raise RuntimeError(f"batch {batch_id}: {type(failure).__name__}") from None
        finally:
            self._limits.ended()

    def _made(self, query_id: str) -> "Callable[[DataFrame, int], BatchReport]":
        pipeline = self._leg.pipeline
        self._outputs = outputs = Outputs(
            pipeline,
            self._place,
            query_id,
            replaying=self._replaying,
            before_effects=lambda batch_id: note_begun(self._state, self._edition.name, batch_id),
            before_commit=lambda batch_id: self._planned.make_durable(query_id, batch_id),
        )
        if pipeline.settings.stateful:
            return StatefulBatches(pipeline, outputs, self._place.bootstrap).process
        check = self._limits.check_memory
        batches = Batches(
            pipeline, outputs, whole_partitions=self._whole_partitions, check=check, searching=self._searching
        )
        return lambda rows, batch_id: batches.process(rows, batch_id, self._effects_from())

    def _check_wanted(self) -> None:
        if self._ending is not None:
            raise Ended(self._ending)
        live = self._state.live()
        assert live is not None
        if (live.edition != self._edition.name) is not self._replaying:
            self._ending = Ending.SWAPPED
            raise Ended(self._ending)

    def _effects_from(self) -> Positions:
        """Positions before which records have had their effects; empty once this edition is past them."""
        live = self._state.live()
        if live is None or self._replaying or not live.effects_from:
            return {}
        read = {topic.name for topic in self._leg.pipeline.inputs.values()}
        before = {topic: each for topic, each in live.effects_from.items() if topic in read}
        behind = ahead(before, checkpoint.committed_position(self._checkpoint))
        return {
            topic: {partition: end for partition, (_, end) in partitions.items()}
            for topic, partitions in behind.items()
        }

    # In the waiting thread

    def _check_deadline(self) -> None:
        context, group = self._spark.sparkContext, str(self.query.runId)
        self._limits.check_deadline(lambda: context.cancelJobGroup(group), lambda: waits_for_cores(context, group))

    def _end(self, ending: Ending) -> None:
        while not self._in_batch.acquire(timeout=_LOOK_S):
            self._check_deadline()
        self._ending = self._ending or ending
        self._in_batch.release()
        # Spark notes the batch a moment after its end. Without the note it would be repeated, to no effect.
        deadline = time.monotonic() + _COMMIT_S
        done = max(self._reports, default=-1)
        while self.query.isActive and time.monotonic() < deadline:
            noted = checkpoint.last_committed_batch(self._checkpoint)
            if done < 0 or (noted is not None and noted >= done):
                break
            time.sleep(_LOOK_S / 4)
        self.query.stop()

    def _progress(self) -> dict[int, Mapping[str, Any]]:
        return of_batches(self.query.recentProgress)

    def _tell_batches(self, progress: Mapping[int, Mapping[str, Any]], *, all_of_them: bool = False) -> None:
        for batch_id in sorted(self._reports):
            if batch_id not in progress and not all_of_them:
                return
            report = self._reports.pop(batch_id)
            self._has_done_a_batch = True
            told = progress.get(batch_id)
            self._lag = None if told is None else offsets_left(told)
            rows_in = report.rows_in
            if rows_in is None and told is not None:
                rows_in = records_read(told)
            event = {
                **self.who,
                "event": "batch",
                "batch": batch_id,
                "at_ms": int(time.time() * 1000),
                "rows_in": rows_in,
                "rows_out": dict(report.rows_out),
                "tables": {name: asdict(change) for name, change in self._changes.pop(batch_id, {}).items()},
                "quarantined": report.quarantined,
                SET_ASIDE: dict(report.set_aside),
                "rules": {rule: dict(counts) for rule, counts in report.rules.items()},
                "repeated": list(report.repeated),
                "skipped": list(report.skipped),
                "too_late": rows_too_late(told),
                "lag": self._lag,
                "duration_ms": report.duration_ms,
                "spent": {**report.spent, "spark": sparks_own_ms(told)},
            }
            note_progress(self._state, self._edition, event)
            self._tell(event)
            for text in report.remarks:
                self._tell({**self.who, "event": "remark", "text": text})

    def _check_checkpoint(self) -> None:
        """Refuses another checkpoint than the edition's: the numbers of batches mean something only with theirs."""
        kept = read_kept(self._state.edition_directory(self._edition.name), self._state.files)
        # A power cut in the first batch may come before the edition notes the id.
        known = self._edition.query_id or (None if kept is None else kept.query_id)
        found = checkpoint.query_id(self._checkpoint)
        if known is not None and found != known:
            raise WrongState(
                f"the checkpoint of edition {self._edition.name} of {self._pipeline.name} is gone or another one, and "
                "its outputs are not: going on would write batches twice or not at all",
                f"`cordwood pipeline replay {self._pipeline.name}` builds the outputs anew beside them",
            )

    def _check_requeue(self) -> None:
        """Refuses to run while a requeue is pending: its records would come after the newer ones that are read now, and
        replace them."""
        if read_plan(self._state, self._edition.name).pending is None:
            return
        finish = f"`cordwood pipeline requeue {self._pipeline.name}` finishes it first"
        raise WrongState(
            f"a requeue of edition {self._edition.name} of {self._pipeline.name} was interrupted",
            "--fresh builds another edition" if self._replaying else finish,
        )

    def _with_inputs(self, pipeline: Pipeline) -> Edition:
        """The edition, with the ids of the topics that it reads. A topic that was made again has other offsets."""
        from cordwood.pipelines.execution.reading_here import topic_ids

        edition = self._route.edition
        found = topic_ids(self._bootstrap, [topic.name for topic in pipeline.inputs.values()])
        ids = {topic: id_ for topic, id_ in found.items() if id_ is not None}
        known = edition.input_ids
        again = sorted(topic for topic, id_ in ids.items() if known.get(topic, id_) != id_)
        if again and self._pipeline.settings.fails_on_data_loss:
            raise WrongState(
                f"the topic {again[0]} was deleted and made again since edition {edition.name} of "
                f"{self._pipeline.name} began to read it: its positions mean nothing there",
                f"`cordwood pipeline replay {self._pipeline.name} --fresh` builds the outputs anew from what there is",
            )
        return edition if ids.items() <= known.items() else self._state.note_inputs(edition, ids)


def start(
    pipeline: Pipeline,
    spark: "SparkSession",
    *,
    bootstrap_servers: str | Mapping[str, str],
    directory: str | os.PathLike[str] | None = None,
    once: bool = False,
    in_place: bool = False,
    tell: Tell = say,
) -> Running:
    """Starts a pipeline's live edition in this process; the first start makes it. Call `wait` on the result.

    With `once` the query reads the present records and ends. A version other than the live one is refused: replay it
    and swap, or with `in_place` let it go on in the live tables from where the live version stopped. Brokers that ask
    for TLS or a log-in take, in the place of addresses, the settings of a client on librdkafka.
    """
    if type(spark).__module__.startswith("pyspark.sql.connect"):
        raise WrongState(
            f"{pipeline.name} cannot be run through Spark Connect: its batches are committed in the driver's process",
            "run it in a classic session; streams() gives its outputs as streams of any session",
        )
    from cordwood.pipelines.execution.topics import check_inputs, prepare_topics
    from cordwood.pipelines.formats.trial_writes import check_tables_can_be_written

    bootstrap = Bootstrap.of(bootstrap_servers)
    project = Project(directory)
    state = project.state(pipeline.name)
    check_inputs(bootstrap, bound(project, pipeline, state.live_edition() if state.live() else None))
    check_tables_can_be_written(pipeline)
    if state.live() is None:
        check_rules(pipeline, spark)
    now_ms = int(time.time() * 1000)
    edition, lock = locked_live_edition(project, state, pipeline, in_place=in_place, now_ms=now_ms)
    try:
        who = {"pipeline": pipeline.name, "edition": edition.name, "version": pipeline.version}

        def remark(text: str) -> None:
            tell({**who, "event": "remark", "text": text})

        if is_to_make_topics(state, edition):
            check_rules(pipeline, spark)
        prepare_topics(bound(project, pipeline, edition), state, edition, bootstrap, remark)
        noting = adopting(state, edition, tell)
        return Running(pipeline, state, edition, spark, bootstrap=bootstrap, once=once, tell=noting, lock=lock)
    except BaseException:
        lock.release()
        raise


def place_of(state: PipelineState, edition: Edition, bootstrap: Bootstrap) -> Place:
    directory = state.edition_directory(edition.name)
    made, taken = noted_tables(state, edition.name), noted_batches(state, edition.name)
    return Place(
        tables={
            name: noted_as(state.table_directory(edition, name), name in made, taken.get(name, {}))
            for name in edition.tables
        },
        topics=edition.topics,
        staging=directory / "staging",
        bootstrap=bootstrap,
        edition=edition.name,
    )
