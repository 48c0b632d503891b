"""The process with the Spark that all pipelines share: `python -m cordwood.pipelines.serving.worker ORDERS`.

Each pipeline has a thread that starts its query in a session of its own, waits for it and tells its end. Jobs of a
pipeline are in a pool of Spark's fair scheduler, so that a long batch of one takes its share of the cores and no more.
The process ends when its standard input does, after the batches under way, and when Java does.
"""

import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from cordwood.client.bootstrap import Bootstrap
from cordwood.pipelines.definition.definition import Pipeline
from cordwood.pipelines.definition.errors import BatchStuck, Refusal, shown_path
from cordwood.pipelines.definition.loading import declared_in, load_pipeline
from cordwood.pipelines.editions.editions import TRIAL, Edition, PipelineState
from cordwood.pipelines.editions.events import Event, line_of
from cordwood.pipelines.editions.live_edition import adopting, is_to_make_topics, locked_live_edition
from cordwood.pipelines.editions.project import Project
from cordwood.pipelines.editions.run_lock import RunLock
from cordwood.pipelines.editions.swapping import lock_path
from cordwood.pipelines.execution.python_memory import KilledPython, PythonKilled
from cordwood.pipelines.process.orphans import lines_of_supervisor
from cordwood.pipelines.process.spark_failures import as_told, end_of_java
from cordwood.pipelines.serving.orders import EXIT_JAVA_DIED, BeginQuery, EndQuery, Survey, WorkerOrders, from_line
from cordwood.pipelines.serving.shared_spark import SharedSpark

if TYPE_CHECKING:
    from cordwood.pipelines.execution.running import Running

_ALIVE_S: Final = 10.0
_LOOK_S: Final = 0.2
_STARTS_WITHIN_S: Final = 120.0
"""After so long a query that still starts its source counts as started, so that others can start, too."""


class Teller:
    """Writes events, from any thread."""

    def __init__(self, descriptor: int) -> None:
        self._events = os.fdopen(descriptor, "w", encoding="utf-8", buffering=1)
        self._lock = threading.Lock()

    def __call__(self, event: Event) -> None:
        line = line_of(event) + "\n"
        with self._lock:
            try:
                self._events.write(line)
            except (BrokenPipeError, ValueError):
                # The supervisor is gone: standard input has ended, too, and the worker ends with it.
                return


class ServingWorker:
    def __init__(self, orders: WorkerOrders, bootstrap: Bootstrap) -> None:
        self._orders = orders
        self._bootstrap = bootstrap
        self._tell = Teller(orders.events)
        self._project = Project(orders.directory)
        self._spark = SharedSpark(self._java_died)
        self._loading = threading.Lock()
        """Files are loaded one at a time: while a file runs its module has one name in all of Python."""
        self._queries: dict[str, Query] = {}
        self._killed = KilledPython()

    def run(self) -> None:
        """Takes orders until there are no more, and waits for the queries."""
        threading.Thread(target=self._tell_life, name="cordwood-alive", daemon=True).start()
        for line in lines_of_supervisor(sys.stdin):
            match from_line(line):
                case Survey(files):
                    self._survey(files)
                case BeginQuery() as order:
                    self._begin(order)
                case EndQuery(pipeline):
                    if pipeline in self._queries:
                        self._queries[pipeline].stop()
                case PythonKilled() as killed:
                    self._killed.note(killed)
        queries = list(self._queries.values())
        for query in queries:
            query.stop()
        for query in queries:
            if query.runs:  # others would only wait for the start of Spark
                query.thread.join()

    def _begin(self, order: BeginQuery) -> None:
        query = Query(order, self._bootstrap, self._project, self._spark, self._loading, self._killed, self._tell)
        self._queries[order.pipeline] = query
        query.thread.start()

    def _survey(self, files: tuple[str, ...]) -> None:
        for file in files:
            self._tell({"event": "loading", "file": file})
            try:
                with self._loading:
                    found = declared_in(Path(file))
            except Refusal as refusal:
                words = {"code": refusal.code, "message": refusal.message, "hint": refusal.hint}
                self._tell({"event": "wrong", "file": file, **words})
                continue
            except BaseException as failure:  # a file may call sys.exit()
                message = f"{file}: {type(failure).__name__}: {failure}"
                self._tell({"event": "wrong", "file": file, "code": "FAILED", "message": message, "hint": ""})
                continue
            for pipeline in found.values():
                self._tell({"event": "found", "file": file, **_facts(pipeline)})
        self._tell({"event": "surveyed"})

    def _tell_life(self) -> None:
        while True:
            time.sleep(_ALIVE_S)
            self._tell({"event": "alive"})

    def _java_died(self) -> None:
        print("Java has ended", file=sys.stderr, flush=True)
        os._exit(EXIT_JAVA_DIED)


class Query:
    """One pipeline's query, from its definition to its end, in a thread."""

    def __init__(
        self,
        order: BeginQuery,
        bootstrap: Bootstrap,
        project: Project,
        spark: SharedSpark,
        loading: threading.Lock,
        killed: KilledPython,
        tell: Teller,
    ) -> None:
        self._order = order
        self._bootstrap = bootstrap
        self._project = project
        self._spark = spark
        self._loading = loading
        self._killed = killed
        self._tell = tell
        self._stopping = threading.Event()
        self._running: Running | None = None
        self._who: dict[str, Any] = {"pipeline": order.pipeline, "edition": order.edition}
        self.thread = threading.Thread(target=self._run, name=f"cordwood-{order.pipeline}", daemon=True)

    @property
    def runs(self) -> bool:
        return self._running is not None

    def stop(self) -> None:
        self._stopping.set()
        running = self._running
        if running is not None:
            running.stop()

    def _run(self) -> None:
        try:
            self._run_query()
        except BaseException as failure:
            if isinstance(failure, Exception):
                if end_of_java(failure):
                    time.sleep(_STARTS_WITHIN_S)  # the process is about to end, which is not this pipeline's failure
                if not isinstance(failure, Refusal):
                    traceback.print_exc()
                file = shown_path(self._order.file)
                told = as_told(failure, self._order.pipeline, self._who["edition"], file)
                # Only the end of this process ends a function that does not come back.
                kind = "stuck" if isinstance(failure, BatchStuck) else "failed"
                self._tell({**self._who, "event": kind, **told.words, "is_final": told.is_final})
            else:
                words = {"code": "FAILED", "message": f"{type(failure).__name__}: {failure}", "hint": ""}
                self._tell({**self._who, "event": "failed", **words, "is_final": False})

    def _run_query(self) -> None:
        from cordwood.pipelines.editions.following import bound
        from cordwood.pipelines.execution.checking_rules import check_rules
        from cordwood.pipelines.execution.idle import has_nothing_to_do
        from cordwood.pipelines.execution.legs import Route
        from cordwood.pipelines.execution.running import Ending, Running
        from cordwood.pipelines.execution.topics import check_inputs, prepare_topics
        from cordwood.pipelines.formats.trial_writes import check_tables_can_be_written

        bootstrap, project = self._bootstrap, self._project
        state = project.state(self._order.pipeline)
        pipeline, tried_from = self._load(state)
        live = state.live_edition() if state.live() else None
        check_inputs(bootstrap, bound(project, pipeline, live))
        if live is None:
            check_tables_can_be_written(pipeline)  # one that has run waits for a store that is away
            if pipeline.rules:
                check_rules(pipeline, self._spark.session_for(pipeline, self._order.spark))
        edition, lock = self._locked(state, pipeline, tried_from)
        try:
            self._who = {"pipeline": pipeline.name, "edition": edition.name}
            settings = pipeline.settings
            is_once = self._order.once or settings.every_ms is not None
            tried_from = edition.source_file if edition.is_trial else ""
            self._tell({**self._who, "event": "loaded", "tried_from": tried_from, "every_ms": settings.every_ms})
            if pipeline.rules and is_to_make_topics(state, edition):
                check_rules(pipeline, self._spark.session_for(pipeline, self._order.spark))
            prepare_topics(bound(project, pipeline, edition), state, edition, bootstrap, self._remark)
            if is_once and has_nothing_to_do(Route(project, state, pipeline, bootstrap, edition)):
                reason = Ending.DONE
            elif self._stopping.is_set():
                reason = Ending.STOPPED
            else:
                reason = None
            if reason is not None:
                lock.release()
                self._tell_end({**self._who, "version": edition.version, "event": "ended", "reason": reason.value})
                return
            session = self._spark.session_for(pipeline, self._order.spark)
            running = Running(
                pipeline,
                state,
                edition,
                session,
                bootstrap=bootstrap,
                once=is_once,
                tell=adopting(state, edition, self._tell_of_query),
                lock=lock,
                before_batch=lambda batch: self._tell({**self._who, "event": "begun", "batch": batch}),
                killed=self._killed,
            )
        except BaseException:
            lock.release()
            raise
        self._running = running
        if self._stopping.is_set():
            running.stop()
        threading.Thread(target=self._tell_start, args=(running,), daemon=True).start()
        running.wait()

    def _remark(self, text: str) -> None:
        self._tell({**self._who, "event": "remark", "text": text})

    def _tell_of_query(self, event: Event) -> None:
        if event["event"] == "ended":
            self._tell_end(event)
        else:
            self._tell(event)

    def _tell_end(self, event: Event) -> None:
        from cordwood.pipelines.execution.running import Ending

        self._tell({**event, "has_read_all": event["reason"] == Ending.DONE.value})

    def _tell_start(self, running: "Running") -> None:
        """Tells when the source of the query has started: its Python process takes most of a start's CPU."""
        deadline = time.monotonic() + _STARTS_WITHIN_S
        try:
            while running.query.status["message"].startswith("Initializing") and time.monotonic() < deadline:
                time.sleep(_LOOK_S)
            if running.query.isActive:
                self._tell({**self._who, "event": "up"})
        except Exception:
            return  # Spark is gone; the thread that waits for the query reports it

    # The definition

    def _load(self, state: PipelineState) -> tuple[Pipeline, str]:
        """The definition that runs, and the author's file if the definition is one on trial that a restart goes on
        with. The file is taken if its version is the live one; while a replay builds the file's version, the live
        edition goes on as it is kept."""
        order = self._order
        with self._loading:
            self._tell({**self._who, "event": "loading"})
            live = state.live()
            if order.edition and live is not None and live.edition == order.edition:
                kept = state.edition(order.edition)
                source_file = order.tried_from or kept.source_file
                path = state.edition_directory(kept.name) / TRIAL if order.tried_from else state.definition(kept)
                return load_pipeline(path, order.pipeline, beside=Path(source_file).parent), order.tried_from
            pipeline = load_pipeline(Path(order.file), order.pipeline)
            if live is None or state.edition(live.edition).version == pipeline.version:
                return pipeline, ""
            kept = state.edition(live.edition)
            self._remark(
                f"{pipeline.name}: {shown_path(order.file)} has version {pipeline.version}, and version {kept.version} "
                f"is live: edition {kept.name} goes on as it is kept. `cordwood pipeline replay "
                f"{shown_path(order.file)}` builds version {pipeline.version} beside it for a swap."
            )
            return load_pipeline(state.definition(kept), pipeline.name, beside=Path(order.file).parent), ""

    def _locked(self, state: PipelineState, pipeline: Pipeline, tried_from: str) -> tuple[Edition, RunLock]:
        now_ms = int(time.time() * 1000)
        if not tried_from:
            return locked_live_edition(self._project, state, pipeline, in_place=False, now_ms=now_ms)
        edition = state.live_edition()
        if edition.name != self._order.edition:
            raise RuntimeError(f"edition {edition.name} of {pipeline.name} became live meanwhile")
        lock = RunLock(lock_path(state, edition.name))
        lock.take(f"edition {edition.name} of {pipeline.name}", now_ms)
        return state.tried(edition, pipeline, tried_from), lock


def _facts(pipeline: Pipeline) -> Mapping[str, Any]:
    return {
        "pipeline": pipeline.name,
        "after": sorted({topic.writer for topic in pipeline.inputs.values() if topic.writer is not None}),
        "every_ms": pipeline.settings.every_ms,
        "spark": {name: str(value) for name, value in pipeline.settings.spark.items()},
    }


def main(text: str) -> int:
    import json

    # A command that stops one pipeline may send this to the holder of its lock, which is this process: it ends anyway.
    # A handler, because Java and Python workers would inherit that the signal is ignored.
    signal.signal(signal.SIGTERM, lambda number, frame: None)
    ServingWorker(WorkerOrders(**json.loads(text)), Bootstrap.from_text(sys.stdin.readline())).run()
    return 0


if __name__ == "__main__":
    code = main(sys.argv[1])
    sys.stdout.flush()
    sys.stderr.flush()
    # Spark's shutdown would wait for threads that are of no use any more; the JVM ends when this process does.
    os._exit(code)
