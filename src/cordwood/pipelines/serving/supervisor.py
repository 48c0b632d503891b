"""Carries out what `Serving` decides: starts the worker, passes orders and events on, takes requests of commands.

This process has no Spark and loads none of the pipelines' files. Everything happens in the thread that calls `run`; a
thread for each worker only brings its events.
"""

import queue
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from cordwood.client.bootstrap import Bootstrap
from cordwood.pipelines.editions.control import Command
from cordwood.pipelines.editions.control import Serving as Control
from cordwood.pipelines.editions.events import Event, Tell
from cordwood.pipelines.process.worker_process import WorkerProcess, shorten_log
from cordwood.pipelines.serving.orders import EXIT_JAVA_DIED, BeginQuery, EndQuery, Order, Survey, WorkerOrders, to_line
from cordwood.pipelines.serving.serving import (
    Begin,
    Effect,
    End,
    EndWorker,
    KillWorker,
    Say,
    Serving,
    StartWorker,
)

_LOOK_S: Final = 0.2
_COMMAND: Final = (sys.executable, "-m", "cordwood.pipelines.serving.worker")


class ServingSupervisor:
    """Runs until all pipelines have ended. `stop` and `kill` may be called from a signal handler."""

    def __init__(
        self,
        serving: Serving,
        control: Control,
        tell: Tell,
        *,
        directory: Path,
        bootstrap: Bootstrap,
        once: bool,
        python_bytes: int,
        command: Sequence[str] = _COMMAND,
    ) -> None:
        self._serving = serving
        self._control = control
        self._tell = tell
        self._directory = directory
        self._bootstrap = bootstrap
        self._once = once
        self._python_bytes = python_bytes
        self._command = command
        self._worker: WorkerProcess | None = None
        self._events: queue.Queue[Event | int] = queue.Queue()
        """Events of the worker, and the exit code of one that is gone."""
        self._is_stopping = False
        self._is_killed = False
        self._reported: object = None

    def run(self) -> None:
        self._control.remove(self._control.requests())
        try:
            while not self._serving.has_ended:
                self._do(self._serving.tick(_now_ms()))
                self._report()
                if self._is_stopping:
                    self._do(self._serving.close())
                self._take_events()
                self._take_requests()
            self._report()
        finally:
            if self._worker is not None:
                self._worker.kill()

    def stop(self) -> None:
        """Has all pipelines end after the batches that are under way."""
        self._is_stopping = True

    def kill(self) -> None:
        """Ends the worker and Spark at once, whatever they are doing."""
        self._is_stopping = self._is_killed = True
        worker = self._worker
        if worker is not None:
            worker.kill()

    def _take_events(self) -> None:
        try:
            event = self._events.get(timeout=_LOOK_S)
            while True:
                if isinstance(event, int):
                    assert self._worker is not None
                    how = self._worker.last_words(event)
                    self._worker = None
                    if event == EXIT_JAVA_DIED:
                        how = f"Spark's Java process ended; its last words are in {self._control.log}"
                    if self._is_stopping:
                        # Whoever ends the worker at once is to blame, and no file or pipeline that it was at.
                        self._do(self._serving.close())
                    self._do(self._serving.worker_died(how, _now_ms()))
                else:
                    self._do(self._serving.heard(event, _now_ms()))
                event = self._events.get_nowait()
        except queue.Empty:
            return

    def _take_requests(self) -> None:
        requests = self._control.requests()
        for request in requests:
            if request.pipeline not in self._serving.pipelines:
                continue
            match request.command:
                case Command.STOP:
                    self._do(self._serving.stop(request.pipeline))
                case Command.START:
                    self._do(self._serving.start(request.pipeline, _now_ms()))
                case Command.RELOAD:
                    self._do(self._serving.reload(request.pipeline, _now_ms()))
        self._report()
        self._control.remove(requests)

    def _do(self, effects: Sequence[Effect]) -> None:
        for effect in effects:
            match effect:
                case StartWorker(files):
                    self._start_worker()
                    if files:
                        self._order(Survey(files))
                case EndWorker():
                    if self._worker is not None:
                        self._worker.end()
                case KillWorker():
                    if self._worker is not None:
                        self._worker.kill()
                case Begin(facts, kept):
                    edition, tried_from = ("", "") if kept is None else kept
                    spark = self._serving.spark_settings()
                    self._order(BeginQuery(facts.name, facts.file, edition, tried_from, self._once, spark))
                case End(pipeline):
                    self._order(EndQuery(pipeline))
                case Say(event):
                    if event["event"] == "batch":
                        shorten_log(self._control.log)
                    self._tell(event)

    def _start_worker(self) -> None:
        def command(events: int) -> list[str]:
            orders = WorkerOrders(str(self._directory), events, self._once)
            return [*self._command, orders.to_text()]

        self._tell({"event": "doing", "pipeline": "all pipelines", "edition": "", "text": "starting Java and Spark"})
        worker = self._worker = WorkerProcess(
            command, self._control.log, python_bytes=self._python_bytes, first_order=self._bootstrap.to_text()
        )
        if self._is_killed:
            worker.kill()

        def listen() -> None:
            with worker:
                for event in worker.events():
                    self._events.put(event)
                self._events.put(worker.wait())

        threading.Thread(target=listen, name="cordwood-worker", daemon=True).start()

    def _order(self, order: Order) -> None:
        if self._worker is not None:
            self._worker.order(to_line(order))

    def _report(self) -> None:
        """Writes `state.json` when something in it has changed."""
        facts = {name: served.as_json() for name, served in self._serving.pipelines.items()}
        if facts and facts != self._reported:
            self._reported = facts
            self._control.report(facts)


def _now_ms() -> int:
    return int(time.monotonic() * 1000)
