"""`cordwood pipeline serve`: runs all pipelines of a directory in one Spark, in the foreground."""

import signal
import sys
import threading
from collections import Counter
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Annotated

import typer

from cordwood.cli.pipeline.foreground import metrics_at
from cordwood.cli.pipeline.options import Directory, Metrics, PythonMemory, Verbose, check_spark_is_installed, refusals
from cordwood.cli.pipeline.run import DEFAULT_MAX_RESTARTS, MaxRestarts
from cordwood.cli.terminal.connecting import ClientConfig, Servers, bootstrap_of
from cordwood.cli.terminal.doing import Doing
from cordwood.cli.terminal.options import AsJson
from cordwood.cli.terminal.output import print_json_line, print_table, remark, say
from cordwood.model.failure import ExitCode, Failure

if TYPE_CHECKING:
    from cordwood.pipelines.editions.events import Event
    from cordwood.pipelines.editions.project import Project
    from cordwood.pipelines.monitoring import PipelineMonitor
    from cordwood.pipelines.serving.serving import Serving
    from cordwood.pipelines.serving.supervisor import ServingSupervisor

_COLUMNS = ["pipeline", "edition", "", "batches", "rows in", "quarantined", "restarts", "failure"]
_IN_MILLIS = 1000


def serve_pipelines(
    files: Annotated[
        Path,
        typer.Argument(
            metavar="DIR", help="The directory of the pipelines' files: every *.py in it.", show_default=False
        ),
    ],
    once: Annotated[bool, typer.Option("--once", help="Let each read what there is, and end with a table.")] = False,
    max_restarts: MaxRestarts = DEFAULT_MAX_RESTARTS,
    metrics: Metrics = None,
    python_memory: PythonMemory = None,
    directory: Directory = None,
    servers: Servers = None,
    client_config: ClientConfig = None,
    verbose: Verbose = False,
    as_json: AsJson = False,
) -> None:
    """Run all pipelines of a directory in one Spark, until stopped.

    Each pipeline has its own restarts: one that fails or is refused leaves the others running, and a file that does not
    load is named and left out. `cordwood pipeline stop`, `start` and `reload` take one of them while the others run.
    All end after the batches under way on SIGTERM or Ctrl-C; a second one ends them at once.
    """
    with refusals():
        import time

        from cordwood.administration.connection import reach
        from cordwood.pipelines.definition.project_files import check_project, load_project
        from cordwood.pipelines.editions.control import Serving as Control
        from cordwood.pipelines.editions.project import Project
        from cordwood.pipelines.editions.run_lock import RunLock
        from cordwood.pipelines.execution.python_memory import default_limit_bytes
        from cordwood.pipelines.process.tries import BACK_OFF
        from cordwood.pipelines.serving.serving import Serving
        from cordwood.pipelines.serving.supervisor import ServingSupervisor

        bootstrap = bootstrap_of(servers, client_config)
        check_spark_is_installed()
        found = _files_in(files)
        for fault in check_project(load_project(files).pipelines.values()):
            # A mistake of one pipeline alone ends that pipeline, and is told when it starts.
            if len(fault.pipelines) > 1:
                raise fault.error
        reach(bootstrap)
        project = Project(directory)
        control = Control(project.directory)
        project.files.make_directory(control.directory)
        lock = RunLock(control.lock)
        lock.take(f"all pipelines of {project.directory}", int(time.time() * _IN_MILLIS))
        try:
            serving = Serving(
                found,
                once=once,
                max_restarts=max_restarts,
                at_once=2,
                back_off=BACK_OFF,
                stopped=control.stopped_before(),
            )
            shown = _Shown(project, as_json=as_json, verbose=verbose)
            endpoint = metrics_at(metrics, project, bootstrap)
            supervisor = ServingSupervisor(
                serving,
                control,
                shown.tell,
                directory=project.directory,
                bootstrap=bootstrap,
                once=once,
                python_bytes=python_memory or default_limit_bytes(),
            )
            with endpoint as shown.monitor:
                _run(supervisor, shown.doing)
        finally:
            lock.release()
    if once:
        shown.table(serving)
    _check(serving)


def _files_in(directory: Path) -> list[str]:
    if not directory.is_dir():
        raise Failure("NOT_FOUND", f"{directory} is no directory", "", ExitCode.NOT_FOUND)
    found = sorted(str(path.resolve()) for path in directory.glob("*.py"))
    if not found:
        hint = "`cordwood pipeline serve DIR` runs the pipelines of every *.py in it"
        raise Failure("NOT_FOUND", f"{directory} has no Python files", hint, ExitCode.NOT_FOUND)
    return found


class _Shown:
    """The events of all pipelines, noted for `status` and shown on the terminal."""

    def __init__(self, project: "Project", *, as_json: bool, verbose: bool) -> None:
        self.doing = Doing()
        self.monitor: PipelineMonitor | None = None
        self._project = project
        self._as_json = as_json
        self._verbose = verbose
        self._batches: Counter[str] = Counter()
        self._rows_in: Counter[str] = Counter()
        self._quarantined: Counter[str] = Counter()

    def tell(self, event: "Event") -> None:
        from cordwood.pipelines.editions.events import clear_failure, in_words, is_empty_batch, note_failure

        name, kind = event.get("pipeline", ""), event["event"]
        if kind == "doing":
            whose = f"{name} {event['edition']}" if event.get("edition") else name or "all pipelines"
            self.doing.show(f"{whose}: {event['text']} …")
            return
        state = self._project.state(name) if event.get("edition") else None
        if state is not None and kind == "failed":
            note_failure(state, event["edition"], event)
        elif state is not None and kind in ("batch", "ended"):
            clear_failure(state, event["edition"])
        if state is not None and self.monitor is not None:
            self.monitor.heard(event)
        if kind == "batch":
            self._batches[name] += 1
            self._rows_in[name] += event["rows_in"] or 0
            self._quarantined[name] += event["quarantined"]
        if is_empty_batch(event) and not self._as_json and not self._verbose:
            return
        self.doing.hide()
        if self._as_json:
            print_json_line(event)
        elif kind == "wrong":
            remark(f"{event['message']}: left out" + (f" ({event['hint']})" if event["hint"] else ""))
        elif kind in ("remark", "failed"):
            remark(in_words(event))
        else:
            words = in_words(event, verbose=self._verbose)
            say(f"{name}: {words}" if kind == "batch" else words)
        sys.stdout.flush()

    def table(self, serving: "Serving") -> None:
        """What `--once` has done, pipeline by pipeline."""
        if self._as_json:
            return
        rows: list[list[object]] = []
        for name, served in serving.pipelines.items():
            facts = served.as_json()
            failure = facts["failure"]
            counts = [counted[name] for counted in (self._batches, self._rows_in, self._quarantined)]
            told = "" if failure is None else failure["message"]
            rows.append([name, facts["edition"], facts["stage"], *counts, facts["restarts"], told])
        rows += [[Path(file).name, None, "wrong", 0, 0, 0, 0, each["message"]] for file, each in serving.wrong.items()]
        print_table(_COLUMNS, rows)


def _run(supervisor: "ServingSupervisor", doing: Doing) -> None:
    saying: threading.Thread | None = None

    def on_signal(number: int, frame: FrameType | None) -> None:
        nonlocal saying
        if saying is not None:
            supervisor.kill()
            return
        text = "all pipelines: ending after the batches under way; once more ends them at once …"
        # The text is shown in a separate thread: the signal may have come in the middle of a line.
        saying = threading.Thread(target=doing.show, args=(text,), daemon=True)
        saying.start()
        supervisor.stop()

    before = {number: signal.signal(number, on_signal) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        with doing:
            supervisor.run()
            if saying is not None:
                saying.join()
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _check(serving: "Serving") -> None:
    """Raises Failure if a pipeline has failed, or a file is wrong."""
    if serving.has_found_nothing:
        raise Failure(
            "NOT_FOUND", "no file declares a pipeline", "decorate a function with @pipeline(…)", ExitCode.NOT_FOUND
        )
    if serving.succeeded:
        return
    if serving.failure is not None:
        raise Failure(serving.failure["code"], serving.failure["message"], serving.failure["hint"])
    failed = [f"{name}: {served.failure['message']}" for name, served in serving.pipelines.items() if served.failure]
    wrong = [str(each["message"]) for each in serving.wrong.values()]
    unfinished = [] if failed or wrong else ["it was stopped before all had read what there was"]
    hint = "the others are not concerned; `cordwood pipeline list` shows all" if failed or wrong else ""
    raise Failure("PIPELINES_FAILED", "; ".join([*wrong, *failed, *unfinished]), hint)
