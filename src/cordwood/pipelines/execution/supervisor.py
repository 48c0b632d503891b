"""Keeps a pipeline's worker running: starts it, passes its events on, starts it again after a failure, stops it.

The worker is a process of its own because Spark's JVM can die, run out of memory or hang, and a new process is the only
cure that always works. Failures in a row are counted; a finished batch resets the count.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import BinaryIO, Final

from cordwood.model.back_off import BackOff
from cordwood.pipelines.editions.events import Event, Tell
from cordwood.pipelines.editions.run_lock import RunLock
from cordwood.pipelines.execution.worker import EXIT_DONE, EXIT_REFUSED, Orders

BACK_OFF: Final = BackOff(1_000, 60_000)
MAX_LOG_BYTES: Final = 16 << 20
"""A log of the worker's output that is longer is begun again, and the old one kept beside it."""


class Supervisor:
    """Runs one worker after another. `stop` may be called from a signal handler."""

    def __init__(
        self,
        orders: Orders,
        lock: RunLock,
        log: Path,
        tell: Tell,
        max_restarts: int,
        back_off: BackOff = BACK_OFF,
        command: Sequence[str] = (sys.executable, "-m", "cordwood.pipelines.execution.worker"),
    ) -> None:
        self._orders = orders
        self._lock = lock
        self._log = log
        self._tell = tell
        self._max_restarts = max_restarts
        self._back_off = back_off
        self._failures = 0
        """Failures since the last finished batch."""
        self._command = command
        self._worker: subprocess.Popen[bytes] | None = None
        self._stopping = threading.Event()
        self._last_failure: Event | None = None

    def run(self) -> Event | None:
        """Runs workers until the pipeline ends. Returns None, or the failure that it ended with."""
        while True:
            code = self._run_worker()
            if code == EXIT_DONE or self._stopping.is_set():
                return None
            failure = self._last_failure or self._silent_death(code)
            if code == EXIT_REFUSED:
                return failure
            self._failures += 1
            if self._failures > self._max_restarts:
                given_up = f" (given up after {self._failures} failures in a row)" if self._max_restarts else ""
                return {**failure, "message": f"{failure['message']}{given_up}"}
            delay_s = self._back_off.pause_ms(self._failures) / 1000
            self._tell({**failure, "again_in_s": delay_s})
            if self._stopping.wait(delay_s):
                return None

    def stop(self) -> None:
        """Has the worker end after the batch that is under way."""
        self._stopping.set()
        worker = self._worker
        if worker is not None and worker.stdin is not None and not worker.stdin.closed:
            worker.stdin.close()

    def kill(self) -> None:
        """Ends the worker and Spark at once, whatever they are doing."""
        self._stopping.set()
        worker = self._worker
        if worker is not None and worker.poll() is None:
            os.killpg(worker.pid, signal.SIGKILL)

    def _run_worker(self) -> int:
        reading, writing = os.pipe()
        orders = replace(self._orders, events=writing)
        self._last_failure = None
        with self._open_log() as log:
            worker = subprocess.Popen(
                [*self._command, orders.to_text()],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                pass_fds=[writing, self._lock.descriptor],
                # The supervisor passes an interrupt at the terminal on: the worker is to end between two batches.
                start_new_session=True,
            )
        os.close(writing)
        self._worker = worker
        if self._stopping.is_set():
            self.stop()
        try:
            with os.fdopen(reading, "r", encoding="utf-8") as events:
                for line in events:
                    if line.endswith("\n"):  # otherwise the worker was killed while it wrote a line
                        self._heard(json.loads(line))
            _end_orphans_of(worker.pid)
            return worker.wait()
        finally:
            if worker.poll() is None:
                os.killpg(worker.pid, signal.SIGKILL)
                worker.wait()
            if worker.stdin is not None and not worker.stdin.closed:
                worker.stdin.close()
            self._worker = None

    def _heard(self, event: Event) -> None:
        if event["event"] == "failed":
            self._last_failure = event
            return
        if event["event"] == "batch":
            self._failures = 0
            self._shorten_log()
        self._tell(event)

    def _silent_death(self, code: int) -> Event:
        how = f"was ended by signal {-code}" if code < 0 else f"ended with exit code {code}"
        return {
            "event": "failed",
            "pipeline": self._orders.pipeline,
            "edition": self._orders.edition,
            "code": "WORKER_DIED",
            "message": f"the worker {how}; its last words are in {self._log}",
            "hint": "",
        }

    def _open_log(self) -> BinaryIO:
        self._shorten_log()
        return open(self._log, "ab")

    def _shorten_log(self) -> None:
        """Copies a long log and empties it in place: the worker has the file open, perhaps for months. Lines that the
        worker writes between the copy and the emptying are lost."""
        if self._log.exists() and self._log.stat().st_size > MAX_LOG_BYTES:
            shutil.copyfile(self._log, self._log.with_suffix(".old.log"))
            os.truncate(self._log, 0)


def _end_orphans_of(worker: int) -> None:
    """Waits for a worker's end, and ends the processes that a killed worker leaves: its Java would keep running beside
    the next worker's and take the memory that the next one needs. The worker is not reaped yet, so that its group's
    number is not used again."""
    end = os.waitid(os.P_PID, worker, os.WEXITED | os.WNOWAIT)
    if end is not None and end.si_code in (os.CLD_KILLED, os.CLD_DUMPED):
        os.killpg(worker, signal.SIGKILL)
