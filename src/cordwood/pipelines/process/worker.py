"""The process of a pipeline's query: `python -m cordwood.pipelines.process.worker ORDERS`, started by a supervisor.

The worker writes its events as lines of JSON to a pipe. It ends after the batch under way when its standard input is
closed: the supervisor closes it to stop the worker, and the system closes it if the supervisor dies. The output of
Spark and of the function goes to a file. The worker inherits the edition's lock, which is held until both processes are
gone.
"""

import json
import os
import sys
import threading
from concurrent.futures import Future
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from cordwood.client.bootstrap import Bootstrap
from cordwood.pipelines.definition.definition import Pipeline
from cordwood.pipelines.definition.errors import Refusal, shown_path
from cordwood.pipelines.definition.loading import load_pipeline
from cordwood.pipelines.editions.events import Event, line_of
from cordwood.pipelines.editions.project import Project
from cordwood.pipelines.execution.python_memory import KilledPython, PythonKilled
from cordwood.pipelines.process.orphans import lines_of_supervisor
from cordwood.pipelines.process.spark_failures import as_told

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

EXIT_DONE: Final = 0
EXIT_FAILED: Final = 1
GO_ON: Final = "go on"
"""The line on which a worker goes on that has checked the rules."""
EXIT_REFUSED: Final = 3
"""Exit code of a refusal: another try would end alike."""
GIVES_WAY: Final = 10
"""Added to the niceness of a replay and its Spark: what is live on the same machine goes first."""


@dataclass(frozen=True)
class Orders:
    """A worker's orders. The connection, which may have a password, comes on standard input, as its first line:
    everybody on the machine can read the arguments of a process."""

    file: str
    pipeline: str
    directory: str
    edition: str
    once: bool
    replay: bool
    """Read history until the edition has caught up, say so, and end; with `once` False go on reading."""
    beside: str
    """The directory of the author's file, whose modules the definition imports."""
    events: int
    """The descriptor to write events to."""
    rows_per_second: int | None = None
    """The most rows that a replay reads in a second; None: as many as it can."""
    checks_first: bool = False
    """Check the rules, say so, and wait for GO_ON: the topics, and a first edition, are made only then."""
    tried_from: str = ""
    """The author's file that `file` is a trial of; empty if it is the edition's own definition."""

    def to_text(self) -> str:
        return json.dumps(asdict(self))


def main(text: str) -> int:
    orders = Orders(**json.loads(text))
    bootstrap = Bootstrap.from_text(sys.stdin.readline())
    events = os.fdopen(orders.events, "w", encoding="utf-8", buffering=1)
    who = {"pipeline": orders.pipeline, "edition": orders.edition}

    def tell(event: Event) -> None:
        try:
            events.write(line_of(event) + "\n")
        except BrokenPipeError:
            # The supervisor is gone: standard input has ended, too, and the worker ends with it.
            return

    try:
        _run(orders, bootstrap, tell)
        return EXIT_DONE
    except Exception as failure:
        file = ""
        if not isinstance(failure, Refusal):
            import traceback

            traceback.print_exc()
            file = shown_path(orders.tried_from or Project(orders.directory).state(orders.pipeline).source_file())
        told = as_told(failure, orders.pipeline, orders.edition, file)
        message = _of_authors_file(told.words["message"], orders)
        tell({**who, "event": "failed", **told.words, "message": message})
        return EXIT_REFUSED if told.is_final else EXIT_FAILED


def _run(orders: Orders, bootstrap: Bootstrap, tell: Any) -> None:
    if orders.replay:
        os.nice(GIVES_WAY)
    # Spark's Python workers inherit the environment, and import modules from the directory of the pipeline's file.
    os.environ["PYTHONPATH"] = os.pathsep.join([orders.beside, *filter(None, [os.environ.get("PYTHONPATH")])])
    tell({"event": "doing", "pipeline": orders.pipeline, "edition": orders.edition, "text": "starting Java and Spark"})
    pipeline = load_pipeline(Path(orders.file), orders.pipeline, beside=Path(orders.beside))
    state = Project(orders.directory).state(orders.pipeline)
    session = _started_beside(pipeline)
    # Importing takes about as long as the start of Java, which runs meanwhile on another core.
    from cordwood.pipelines.editions.checkpoint import committed_position
    from cordwood.pipelines.editions.following import bound
    from cordwood.pipelines.editions.live_edition import adopting
    from cordwood.pipelines.execution.checking_rules import check_rules
    from cordwood.pipelines.execution.pacing import Pace
    from cordwood.pipelines.execution.reading_here import records_behind
    from cordwood.pipelines.execution.replaying import replay
    from cordwood.pipelines.execution.running import Running
    from cordwood.pipelines.execution.sessions import tell_what_is_done

    if pipeline.tables:
        import deltalake  # noqa: F401
    spark = session.result()
    who = {"pipeline": orders.pipeline, "edition": orders.edition}
    asked, going_on = threading.Event(), threading.Event()
    killed = KilledPython()
    stopping: list[Running] = []

    def watch() -> None:
        for line in lines_of_supervisor(sys.stdin):
            if line.strip() == GO_ON:
                going_on.set()
            else:
                killed.note(PythonKilled.from_line(line))
        asked.set()
        going_on.set()
        for running in list(stopping):
            running.stop()

    threading.Thread(target=watch, name="cordwood-stop", daemon=True).start()
    if orders.checks_first:
        tell({**who, "event": "doing", "text": "checking the rules"})
        check_rules(pipeline, spark)
        tell({**who, "event": "checked"})
        going_on.wait()
        if asked.is_set():
            return
    pace = Pace(orders.rows_per_second)

    def begin(once: bool) -> Running:
        edition = state.edition(orders.edition)
        tell({**who, "event": "doing", "text": "planning the query"})
        if orders.tried_from:
            edition = state.tried(edition, pipeline, orders.tried_from)
        running = Running(
            pace.with_small_batches(pipeline),
            state,
            edition,
            spark,
            bootstrap=bootstrap,
            once=once,
            tell=adopting(state, edition, tell),
            killed=killed,
            pace=pace,
        )
        stopping.append(running)
        if asked.is_set():
            running.stop()
        tell_what_is_done(running, tell)
        return running

    if orders.replay:

        def behind() -> int:
            now = bound(Project(orders.directory), pipeline, state.edition(orders.edition))
            topics = [topic.name for topic in now.inputs.values()]
            position = committed_position(state.checkpoint(orders.edition))
            return records_behind(bootstrap, topics, position)

        replay(
            begin,
            state,
            state.edition(orders.edition),
            follow=not orders.once,
            behind=behind,
            batch_rows=pipeline.settings.max_rows_per_batch,
            tell=tell,
        )
    else:
        begin(orders.once).wait()


def _started_beside(pipeline: Pipeline) -> "Future[SparkSession]":
    """The session, which a daemon thread starts. Only a caller that asks for the session waits for the thread."""
    session: Future[SparkSession] = Future()

    def start() -> None:
        try:
            from cordwood.pipelines.execution.sessions import pipeline_session, warm_up

            spark = pipeline_session(f"cordwood pipeline {pipeline.name}", pipeline.settings.spark)
            spark.sparkContext.setLogLevel("WARN")
            warm_up(spark, pipeline)
            session.set_result(spark)
        except BaseException as failure:
            session.set_exception(failure)

    threading.Thread(target=start, name="cordwood-java", daemon=True).start()
    return session


def _of_authors_file(message: str, orders: Orders) -> str:
    """The message, with the author's file in the place of the copy that the edition keeps, if both are the same."""
    source = orders.tried_from or Project(orders.directory).state(orders.pipeline).source_file()
    try:
        is_same = Path(source).read_bytes() == Path(orders.file).read_bytes()
    except OSError:
        return message
    return message.replace(str(Path(orders.file).resolve()), shown_path(source)) if is_same else message


if __name__ == "__main__":
    code = main(sys.argv[1])
    sys.stdout.flush()
    sys.stderr.flush()
    # Spark's shutdown would wait for threads that are of no use any more; the JVM ends when this process does.
    os._exit(code)
