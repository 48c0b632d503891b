"""The process of a worker, as its supervisor has it: its orders, its events, its log, its memory, its end.

The worker ends when its standard input does, and so when the supervisor dies (`orphans`). Spark and the Python
processes of Spark are its descendants.
"""

import json
import os
import shutil
import signal
import subprocess
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO, Final, Self

from cordwood.pipelines.execution.python_memory import PythonKilled, PythonProcesses
from cordwood.pipelines.process.orphans import END

_LOOK_S: Final = 0.25
_GONE_S: Final = 0.02
MAX_LOG_BYTES: Final = 16 << 20
"""A log of the worker's output that is longer is begun again, and the old one kept beside it."""


class WorkerProcess:
    """A worker that runs. Leaving the context kills one that still does."""

    def __init__(
        self,
        command: Callable[[int], Sequence[str]],
        log: Path,
        *,
        python_bytes: int,
        inherited: Sequence[int] = (),
        first_order: str | None = None,
    ) -> None:
        """`command` gets the descriptor to which the worker writes its events. `python_bytes`: what its Python
        processes may take together. `inherited`: further descriptors that it keeps open. `first_order`: the first line
        that it reads."""
        self._log = log
        self._python_bytes = python_bytes
        self._killed_for: str | None = None
        self._ordering = threading.Lock()
        self._has_ended = threading.Event()
        self._reading, writing = os.pipe()
        try:
            with _open_log(log) as output:
                self._process = subprocess.Popen(
                    command(writing),
                    stdin=subprocess.PIPE,
                    stdout=output,
                    stderr=output,
                    pass_fds=[writing, *inherited],
                    # The supervisor passes an interrupt at the terminal on: the worker is to end between two batches.
                    start_new_session=True,
                )
        finally:
            os.close(writing)
        if first_order is not None:
            self.order(first_order)
        threading.Thread(target=self._bound_memory, name="cordwood-memory", daemon=True).start()

    @property
    def pid(self) -> int:
        return self._process.pid

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, raised: BaseException | None, where: TracebackType | None
    ) -> None:
        if self._process.poll() is None:
            os.killpg(self.pid, signal.SIGKILL)
            self._process.wait()
        self.end()

    def events(self) -> Iterator[dict[str, Any]]:
        """The events of the worker, until it is gone."""
        with os.fdopen(self._reading, "r", encoding="utf-8") as events:
            for line in events:
                if line.endswith("\n"):  # otherwise the worker was killed while it wrote a line
                    yield json.loads(line)

    def order(self, line: str) -> None:
        """Sends a line to the worker. Nobody hears it if the worker is gone."""
        with suppress(OSError, ValueError), self._ordering:
            assert self._process.stdin is not None
            self._process.stdin.write(line.encode() + b"\n")
            self._process.stdin.flush()

    def end(self) -> None:
        """Has the worker end after the batches that are under way."""
        if self._process.stdin is not None and not self._process.stdin.closed:
            self.order(END)
            with suppress(OSError):
                self._process.stdin.close()

    def kill(self) -> None:
        """Ends the worker and Spark at once, whatever they are doing."""
        if self._process.poll() is None:
            os.killpg(self.pid, signal.SIGKILL)

    def wait(self) -> int:
        """Waits for the worker's end, and ends the processes that a killed worker leaves: its Java would keep running
        beside the next worker's and take the memory that the next one needs. The worker is not reaped before, so that
        its group's number is not used again."""
        end = os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOWAIT)
        self._has_ended.set()
        if end is not None and end.si_code in (os.CLD_KILLED, os.CLD_DUMPED):
            os.killpg(self.pid, signal.SIGKILL)
        return self._process.wait()

    def last_words(self, code: int) -> str:
        """The end of a worker that said nothing about it."""
        if self._killed_for is not None:
            return self._killed_for
        how = f"was ended by signal {-code}" if code < 0 else f"ended with exit code {code}"
        return f"the worker {how}; its last words are in {self._log}"

    def _bound_memory(self) -> None:
        """Kills the largest Python process whenever all of them take too much."""
        processes = PythonProcesses(self.pid)
        while not self._has_ended.wait(_LOOK_S):
            largest = processes.largest_beyond(self._python_bytes)
            if largest is None:
                continue
            if largest.pid == self.pid:
                self._killed_for = largest.in_words(
                    "the worker, in which functions build their plans,", self._python_bytes
                )
            else:
                self.order(PythonKilled(largest.in_words("a Python worker", self._python_bytes)).to_line())
            with suppress(ProcessLookupError):
                os.kill(largest.pid, signal.SIGKILL)
            while processes.has(largest.pid) and not self._has_ended.wait(_GONE_S):
                pass


def shorten_log(log: Path) -> None:
    """Copies a long log and empties it in place: the worker has the file open, perhaps for months. Lines that the
    worker writes between the copy and the emptying are lost."""
    if log.exists() and log.stat().st_size > MAX_LOG_BYTES:
        shutil.copyfile(log, log.with_suffix(".old.log"))
        os.truncate(log, 0)


def _open_log(log: Path) -> BinaryIO:
    shorten_log(log)
    return open(log, "ab")
