"""A driver with its own Spark that dies when its writes come to a step, or loses a task there, and is started again.

Its program is `power_cut_driver.py`. Whoever makes a driver calls `end`, which leaves no process behind.
"""

import contextlib
import json
import os
import signal
import subprocess
import sys
from enum import Enum
from pathlib import Path
from typing import Any

from tests.spark.crash_story import FAULT_INJECTION

PROGRAM = Path(__file__).parent / "power_cut_driver.py"


class FaultyDriver:
    def __init__(self, directory: Path, orders: dict[str, Any], environment: dict[str, str] | None = None) -> None:
        self._directory = directory
        self._orders = {**orders, "local": str(directory / "local")}
        self._environment = environment or {}
        self._faults = directory / "faults"
        self._faults.mkdir()
        self._process: subprocess.Popen[str] | None = None

    def run(self) -> str | None:
        """Runs the query to the end of its source. Returns its failure."""
        answer = self._ask()
        assert answer, f"the driver died:\n{self.said()}"
        failure: str | None = json.loads(answer)["failure"]
        return failure

    def run_with(self, step: Enum, *victims: str) -> None:
        """Runs the query with a fault at a step: `driver` is the driver with its Java, `self` the process that comes
        to the step; other words are as fault_injection takes them."""
        order = self._faults / f".{step.value}"
        words = [str(-self._started().pid) if victim == "driver" else victim for victim in victims]
        order.write_text(" ".join(words))
        order.rename(self._faults / step.value)
        answer = self._ask()
        assert not (self._faults / step.value).exists(), f"{step} was not reached: {answer}\n{self.said()}"
        if "driver" in victims:
            assert not answer, f"the driver lives: {answer}"
            self.end()

    def end(self) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate(timeout=30)

    def said(self) -> str:
        return (self._directory / "driver.err").read_text(errors="replace")[-6000:]

    def _ask(self) -> str:
        """The driver's answer; empty if it died."""
        process = self._started()
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write("run\n")
        process.stdin.flush()
        return process.stdout.readline()

    def _started(self) -> "subprocess.Popen[str]":
        if self._process is not None:
            return self._process
        environment = {
            **os.environ,
            **self._environment,
            "SINK_FAULTS": str(self._faults),
            "PYTHONPATH": str(FAULT_INJECTION),
            "PYSPARK_PYTHON": sys.executable,
            "SPARK_LOCAL_IP": "127.0.0.1",
        }
        with (self._directory / "driver.err").open("ab") as errors:
            self._process = subprocess.Popen(
                [sys.executable, str(PROGRAM), json.dumps(self._orders)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                env=environment,
                cwd=self._directory,
                start_new_session=True,
            )
        return self._process
