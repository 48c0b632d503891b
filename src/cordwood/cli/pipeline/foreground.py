"""Runs a pipeline's worker in the foreground of a terminal, until it ends, fails for good or is told to stop.

A command that runs several editions asks the brokers between two of them, too, and is as patient there as a run is.
"""

import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, TypeVar

from cordwood.cli.pipeline.options import as_failure, failure_of_brokers
from cordwood.cli.pipeline.target import Found
from cordwood.cli.terminal.doing import Doing
from cordwood.cli.terminal.output import print_json_line, remark, say
from cordwood.model.failure import ExitCode, Failure
from cordwood.pipelines.definition.definition import Pipeline
from cordwood.pipelines.definition.errors import InvalidDefinition
from cordwood.pipelines.editions.editions import Edition, PipelineState
from cordwood.pipelines.editions.events import Event, Tell, clear_failure, in_words, is_empty_batch, note_failure
from cordwood.pipelines.editions.project import Project
from cordwood.pipelines.editions.run_lock import RunLock
from cordwood.pipelines.execution.python_memory import default_limit_bytes
from cordwood.pipelines.execution.running import Ending
from cordwood.pipelines.process.rule_check import failure_of_rules
from cordwood.pipelines.process.supervisor import Supervisor
from cordwood.pipelines.process.tries import Tries
from cordwood.pipelines.process.worker import Orders

if TYPE_CHECKING:
    from cordwood.client.bootstrap import Bootstrap
    from cordwood.pipelines.monitoring import PipelineMonitor

T = TypeVar("T")


@contextmanager
def metrics_at(address: str | None, project: Project, bootstrap: "Bootstrap") -> "Iterator[PipelineMonitor | None]":
    """The endpoint for Prometheus at this address, while the block runs; None without an address."""
    if address is None:
        yield None
        return
    from cordwood.pipelines.monitoring import PipelineMonitor

    with PipelineMonitor(project, bootstrap, address) as monitor:
        remark(f"Metrics: {monitor.url}")
        yield monitor


def run_in_foreground(
    found: Found,
    edition: Edition,
    lock: RunLock,
    *,
    bootstrap: "Bootstrap",
    once: bool,
    replay: bool,
    max_restarts: int,
    as_json: bool,
    rows_per_second: int | None = None,
    monitor: "PipelineMonitor | None" = None,
    verbose: bool = False,
    python_bytes: int | None = None,
    when_checked: Callable[[], None] | None = None,
) -> bool:
    """Runs the worker. The first SIGTERM or Ctrl-C ends it after the batch, a second one at once. Returns False if one
    of them came. Raises Failure. With `when_checked` the worker checks the rules first; that is called when they are
    good, before anything else."""

    doing = Doing()
    tell = telling(found, edition, doing, as_json=as_json, monitor=monitor, verbose=verbose)
    directory = found.state.edition_directory(edition.name)
    orders = Orders(
        file=str(found.state.definition(edition)),
        pipeline=found.pipeline.name,
        directory=str(found.project.directory),
        edition=edition.name,
        once=once,
        replay=replay,
        beside=str(found.source_file.parent),
        events=-1,
        rows_per_second=rows_per_second,
        tried_from=edition.source_file if edition.is_trial else "",
        checks_first=when_checked is not None,
    )
    log = directory / "worker.log"
    limit_bytes = python_bytes or default_limit_bytes()
    supervisor = Supervisor(
        orders,
        bootstrap,
        lock,
        log,
        tell,
        max_restarts,
        python_bytes=limit_bytes,
        when_checked=when_checked or (lambda: None),
    )
    saying: threading.Thread | None = None

    def on_signal(number: int, frame: FrameType | None) -> None:
        nonlocal saying
        if saying is not None:
            supervisor.kill()
            return
        text = f"{found.pipeline.name} {edition.name}: ending after the batch under way; once more ends it at once …"
        # The text is shown in a separate thread: the signal may have come in the middle of a line.
        saying = threading.Thread(target=doing.show, args=(text,), daemon=True)
        saying.start()
        supervisor.stop()

    before = {number: signal.signal(number, on_signal) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        with doing:
            failure = supervisor.run()
            if saying is not None:
                saying.join()
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    if failure is not None:
        note_failure(found.state, edition.name, failure)
        raise _failure(failure)
    return saying is None


def telling(
    found: Found,
    edition: Edition,
    doing: Doing,
    *,
    as_json: bool,
    monitor: "PipelineMonitor | None" = None,
    verbose: bool = False,
) -> Tell:
    """Notes and shows the events of an edition's run."""

    def tell(event: Event) -> None:
        _note(found.state, edition.name, event)
        if monitor is not None:
            monitor.heard(event)
        if event["event"] == "doing":
            doing.show(in_words(event))
            return
        if is_empty_batch(event) and not as_json and not verbose:
            return
        doing.hide()
        if as_json:
            print_json_line(event)
        elif event["event"] in ("remark", "failed"):
            remark(in_words(event))
        else:
            say(in_words(event, verbose=verbose))
        sys.stdout.flush()

    return tell


def asked_again(question: Callable[[], T], found: Found, edition: Edition, tell: Tell, tries: Tries) -> T:
    """The answer to a question to the brokers, which is asked again after the pauses of a run's new tries while brokers
    are lost. Raises Failure when it is given up; the edition's failure says so to `status`, too."""
    has_failed = False
    while True:
        try:
            answer = question()
        except Exception as error:
            failure = error if isinstance(error, Failure) else failure_of_brokers(error)
            if failure is None or failure.exit_code is not ExitCode.NOT_REACHABLE:
                raise
            has_failed = True
            who = {"pipeline": found.pipeline.name, "edition": edition.name, "version": edition.version}
            told = {"event": "failed", "code": failure.code, "message": failure.message, "hint": failure.hint}
            pause_ms = tries.pause_ms()
            if pause_ms is None:
                failure = Failure(failure.code, tries.given_up(failure.message), failure.hint, failure.exit_code)
                note_failure(found.state, edition.name, {**who, **told, "message": failure.message})
                raise failure from error
            tell({**who, **told, "again_in_s": pause_ms / 1000})
            time.sleep(pause_ms / 1000)
        else:
            if has_failed:
                clear_failure(found.state, edition.name)
            return answer


def check_rules_first(pipeline: Pipeline, source_file: Path) -> None:
    """Raises Failure for rules that rows cannot be judged by. Called before an edition is made: nothing is there yet
    that a refusal would leave behind."""
    with Doing() as doing:
        if pipeline.rules:
            doing.show(f"{pipeline.name}: checking the rules …")
        failure = failure_of_rules(pipeline, beside=source_file.parent, python_bytes=default_limit_bytes())
    if failure is not None:
        raise as_failure(failure["code"], failure["message"], failure["hint"])


def tell_that_nothing_is_there(found: Found, edition: Edition, *, as_json: bool) -> None:
    """Reports the end of a run that had nothing to read, and for which Spark was not started."""
    who = {"pipeline": found.pipeline.name, "edition": edition.name, "version": edition.version}
    event = {**who, "event": "ended", "reason": Ending.DONE.value}
    _note(found.state, edition.name, event)
    if as_json:
        print_json_line(event)
    else:
        say(in_words(event))


def _note(state: PipelineState, edition: str, event: Event) -> None:
    """Notes the failure for `status`, which may be asked while this process waits for the next try, or is gone."""
    if event["event"] == "failed":
        note_failure(state, edition, event)
    elif event["event"] in ("batch", "ended"):
        clear_failure(state, edition)


def _failure(event: Event) -> Failure:
    # The message about a wrong definition begins with its file and line.
    who = "" if event["code"] == InvalidDefinition.code else f"{event['pipeline']} {event['edition']}: "
    return as_failure(event["code"], f"{who}{event['message']}", event["hint"])
