"""Keeps a pipeline's worker running: starts it, passes its events on, starts it again after a failure, stops it.

The worker is a process of its own because Spark's JVM can die, run out of memory or hang, and a new process is the only
cure that always works. Failures in a row are counted; a finished batch resets the count.
"""

import sys
import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from cordwood.client.bootstrap import Bootstrap
from cordwood.model.back_off import BackOff
from cordwood.pipelines.editions.events import Event, Tell
from cordwood.pipelines.editions.run_lock import RunLock
from cordwood.pipelines.process.tries import BACK_OFF, Tries
from cordwood.pipelines.process.worker import EXIT_DONE, EXIT_REFUSED, GO_ON, Orders
from cordwood.pipelines.process.worker_process import WorkerProcess, shorten_log


class Supervisor:
    """Runs one worker after another. `stop` may be called from a signal handler. `when_checked` is called when a worker
    has checked the rules, if it was ordered to do that first; the worker goes on when it returns."""

    def __init__(
        self,
        orders: Orders,
        bootstrap: Bootstrap,
        lock: RunLock,
        log: Path,
        tell: Tell,
        max_restarts: int,
        back_off: BackOff = BACK_OFF,
        *,
        python_bytes: int,
        when_checked: Callable[[], None] = lambda: None,
        command: Sequence[str] = (sys.executable, "-m", "cordwood.pipelines.process.worker"),
    ) -> None:
        self._orders = orders
        self._bootstrap = bootstrap
        self._lock = lock
        self._log = log
        self._tell = tell
        self._tries = Tries(max_restarts, back_off)
        self._python_bytes = python_bytes
        self._when_checked = when_checked
        self._command = command
        self._worker: WorkerProcess | None = None
        self._stopping = threading.Event()
        self._last_failure: Event | None = None
        self._last_words = ""

    def run(self) -> Event | None:
        """Runs workers until the pipeline ends. Returns None, or the failure that it ended with."""
        while True:
            code = self._run_worker()
            if code == EXIT_DONE or self._stopping.is_set():
                return None
            failure = self._last_failure or self._silent_death()
            if code == EXIT_REFUSED:
                return failure
            pause_ms = self._tries.pause_ms(failure["code"])
            if pause_ms is None:
                return {**failure, "message": self._tries.given_up(failure["message"])}
            self._tell({**failure, "again_in_s": pause_ms / 1000})
            if self._stopping.wait(pause_ms / 1000):
                return None

    def stop(self) -> None:
        """Has the worker end after the batch that is under way."""
        self._stopping.set()
        worker = self._worker
        if worker is not None:
            worker.end()

    def kill(self) -> None:
        """Ends the worker and Spark at once, whatever they are doing."""
        self._stopping.set()
        worker = self._worker
        if worker is not None:
            worker.kill()

    def _run_worker(self) -> int:
        self._last_failure = None
        with WorkerProcess(
            lambda events: [*self._command, replace(self._orders, events=events).to_text()],
            self._log,
            python_bytes=self._python_bytes,
            inherited=[self._lock.descriptor],
            first_order=self._bootstrap.to_text(),
        ) as worker:
            self._worker = worker
            if self._stopping.is_set():
                self.stop()
            try:
                for event in worker.events():
                    if event["event"] == "checked":
                        self._when_checked()
                        worker.order(GO_ON)
                    else:
                        self._heard(event)
                code = worker.wait()
                self._last_words = worker.last_words(code)
                return code
            finally:
                self._worker = None

    def _heard(self, event: Event) -> None:
        if event["event"] == "failed":
            self._last_failure = event
            return
        if event["event"] == "batch":
            self._tries.succeeded()
            shorten_log(self._log)
        self._tell(event)

    def _silent_death(self) -> Event:
        return {
            "event": "failed",
            "pipeline": self._orders.pipeline,
            "edition": self._orders.edition,
            "code": "WORKER_DIED",
            "message": self._last_words,
            "hint": "",
        }
