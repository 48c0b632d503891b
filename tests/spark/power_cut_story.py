"""A query whose checkpoint is on a disk that loses its power at a step of the sink, with the driver; then it goes on.

The broker and its log are elsewhere and live on. Owns the driver's process; promises that none is left.
"""

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

from tests.broker_process import EXECUTABLE
from tests.crash.mounts import LoopDisk
from tests.deadline import eventually
from tests.spark.conftest import Record, produce
from tests.spark.crash_story import FAULT_INJECTION
from tests.spark.sink_stories import committed, values

from cordwood.spark.sink.steps import Step

DRIVER = Path(__file__).parent / "power_cut_driver.py"
CHECKPOINT = "queries/checkpoint"
TORN = "Incomplete log file"
"""What Spark says of a file of its checkpoint that a power cut left empty, and does not start."""


class PowerCutStory:
    def __init__(
        self, directory: Path, disk: LoopDisk, bootstrap: str, source: str, target: str, *, stateful: bool
    ) -> None:
        self._directory = directory
        self._disk = disk
        self._bootstrap = bootstrap
        self._source = source
        self._target = target
        self._stateful = stateful
        self._faults = directory / "faults"
        self._faults.mkdir()
        self._rows: list[str] = []
        self._driver: subprocess.Popen[str] | None = None

    def add(self, count: int) -> None:
        rows = [f"row {len(self._rows) + number:04d}" for number in range(count)]
        produce(self._bootstrap, self._source, [Record(row.encode()) for row in rows])
        self._rows += rows

    def run(self) -> None:
        """The query comes to the end of its source. Where Spark refuses an empty file, it is repaired by the docs."""
        failure = self._run()
        if failure is not None and TORN in failure:
            self._repair()
            failure = self._run()
        assert failure is None, f"{failure}\n{self._said()}"

    def _run(self) -> str | None:
        answer = self._ask()
        assert answer, f"the driver died:\n{self._said()}"
        failure: str | None = json.loads(answer)["failure"]
        return failure

    def _repair(self) -> None:
        command = ["spark", "repair-checkpoint", str(self._disk.path / CHECKPOINT)]
        done = subprocess.run(
            [str(EXECUTABLE), *command, "--bootstrap-server", self._bootstrap],
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )
        assert done.returncode == 0, f"{done.stdout}{done.stderr}"

    def run_and_cut_at(self, step: Step) -> None:
        """The power fails when the query comes to the step."""
        order = self._faults / f".{step.value}"
        driver = self._started()
        order.write_text(f"power:{self._disk.path} {-driver.pid}")
        order.rename(self._faults / step.value)
        answer = self._ask()
        assert not (self._faults / step.value).exists(), f"{step} was not reached: {answer}\n{self._said()}"
        self._machine_restarts()

    def cut(self) -> None:
        """The power fails while the query has nothing to do: Spark has noted its last batch, and not synced that."""
        self._disk.cut_power()
        self._machine_restarts()

    def check(self) -> None:
        """Every row is counted or written once, and nothing that was written is written again."""
        found = values(committed(self._bootstrap, self._target))
        if not self._stateful:
            assert found == self._rows, f"lost: {sorted(set(self._rows) - set(found))}"
            return
        counts: dict[str, list[int]] = defaultdict(list)
        for value in found:
            parity, _, count = value.partition(": ")
            counts[parity].append(int(count))
        even = sum(int(row[-1]) % 2 == 0 for row in self._rows)
        last = {parity: max(each) for parity, each in counts.items()}
        assert last == {"even": even, "odd": len(self._rows) - even}, f"lost or counted twice: {dict(counts)}"
        # Every batch has rows of both, so that a count that comes twice is a batch that was written twice.
        assert all(len(each) == len(set(each)) for each in counts.values()), f"written twice: {dict(counts)}"

    def end(self) -> None:
        driver, self._driver = self._driver, None
        if driver is None:
            return
        with contextlib.suppress(ProcessLookupError):
            os.killpg(driver.pid, signal.SIGKILL)
        driver.communicate(timeout=30)

    def _ask(self) -> str:
        """Its answer; nothing if it died."""
        driver = self._started()
        assert driver.stdin is not None
        assert driver.stdout is not None
        driver.stdin.write("run\n")
        driver.stdin.flush()
        return driver.stdout.readline()

    def _started(self) -> "subprocess.Popen[str]":
        if self._driver is not None:
            return self._driver
        story = {
            "bootstrap": self._bootstrap,
            "source": self._source,
            "target": self._target,
            "checkpoint": f"file://{self._disk.path / CHECKPOINT}",
            "local": str(self._directory / "local"),
            "stateful": self._stateful,
        }
        environment = {
            **os.environ,
            "SINK_FAULTS": str(self._faults),
            "PYTHONPATH": str(FAULT_INJECTION),
            "PYSPARK_PYTHON": sys.executable,
            "SPARK_LOCAL_IP": "127.0.0.1",
        }
        with (self._directory / "driver.err").open("wb") as errors:
            self._driver = subprocess.Popen(
                [sys.executable, str(DRIVER), json.dumps(story)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                env=environment,
                cwd=self._directory,
                start_new_session=True,
            )
        return self._driver

    def _machine_restarts(self) -> None:
        self.end()
        eventually(self._unmounted, 60, what="the end of all who use the disk")
        self._disk.mount()

    def _unmounted(self) -> bool:
        try:
            self._disk.unmount()
        except subprocess.CalledProcessError:
            return False
        return True

    def _said(self) -> str:
        return (self._directory / "driver.err").read_text(errors="replace")[-6000:]
