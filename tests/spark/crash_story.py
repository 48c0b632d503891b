"""Driver, executors and broker as processes, killed at named steps of the sink, and started again until all is written.

A fault names steps and their victims: `executor` is one of the executors, `worker` is the process that reaches the
step, `driver` the driver's JVM and program with it (its Python workers live on for a while, as zombies), `broker` the
broker. The next fault comes when all steps of the last one have been reached. The story owns all processes, and leaves
none behind.
"""

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections import defaultdict
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from tests.broker_process import BrokerProcess
from tests.deadline import eventually
from tests.spark.sink_stories import Lines, committed, families, query_id

DRIVER = Path(__file__).parent / "sink_driver.py"
FAULT_INJECTION = Path(__file__).parent / "fault_injection"
"""On the path of Python, it has every process of the driver and of the executors obey the orders of `_arm`."""
PARTITIONS = 2
ROWS = 30

Fault = Mapping[str, str]


class CrashStory:
    def __init__(
        self, directory: Path, *, master: str = "local[2,4]", workers: Sequence[int] = (), **story: Any
    ) -> None:
        """`workers`: process ids of the cluster's workers, where the executors are not the driver's own processes."""
        self.directory = directory
        self.faults_directory = directory / "faults"
        self.faults_directory.mkdir()
        self.lines = Lines(directory / "lines")
        self.checkpoint = directory / "checkpoint"
        settings = {
            "num.partitions": str(PARTITIONS),
            "transaction.abort.timed.out.transaction.cleanup.interval.ms": "1000",
        }
        self.broker = BrokerProcess(directory / "data", settings=settings, keep_port=True)
        self.topic = "target"
        self.runs = 0
        self.expected: list[list[str]] = []
        self._workers = workers
        self._faults = {"SINK_FAULTS": str(self.faults_directory), "PYTHONPATH": str(FAULT_INJECTION)}
        everywhere = {f"spark.executorEnv.{name}": value for name, value in self._faults.items()}
        self._story = {"master": master, **story, "settings": {**everywhere, **story.get("settings", {})}}
        self._driver: subprocess.Popen[bytes] | None = None
        self._output = directory / "driver.out"

    def __enter__(self) -> "CrashStory":
        self.broker.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._kill_driver()
        self.broker.end()

    def add_batch(self) -> None:
        number = len(self.expected)
        self.expected.append([f"{number:04d}-{row:03d}" for row in range(ROWS)])
        self.lines.add(self.expected[-1])

    def play(self, faults: Sequence[Fault]) -> None:
        """Plays all faults, one after the other, and then waits until everything is written."""
        for fault in faults:
            self._keep_running()
            self._arm(fault)
            self.add_batch()
            eventually(partial(self._still_armed, fault), to_be=[], what=f"the fault {dict(fault)}")
        self.add_batch()
        stop = self.directory / "stop"
        stop.touch()
        eventually(
            lambda: self._keep_running() is not None or self.said()[-2000:], to_be=True, what="the end of the driver"
        )

    def _still_armed(self, fault: Fault) -> list[str]:
        """The steps at which the fault is still to strike, and what was said meanwhile; empty when all have."""
        steps = [str(step) for step in fault if (self.faults_directory / step).exists()]
        if steps:
            self._keep_running(fault)
        return [*steps, self.said()[-2000:]] if steps else []

    def check(self) -> None:
        """Asserts that every line is visible once, each batch is from one run, and nothing is open."""
        found: dict[str, list[str]] = defaultdict(list)
        for message in committed(self.broker.bootstrap, self.topic, PARTITIONS):
            line, run, _ = (message.value() or b"").decode().split("|")
            assert (message.key() or b"").decode() == line
            found[line].append(run)
        expected = [line for batch in self.expected for line in batch]
        assert sorted(found) == expected, f"lost: {sorted(set(expected) - set(found))}"
        doubled = {line: runs for line, runs in found.items() if len(runs) != 1}
        assert doubled == {}
        for batch in self.expected:
            assert len({found[line][0] for line in batch}) == 1, f"two runs have written {batch[0]}"
        family = families(self.broker.bootstrap)[query_id(self.checkpoint)]
        assert family.last_batch_id == len(self.expected) - 1
        assert family.joined_slots == 0, "something is left open"

    def said(self) -> str:
        return self._output.read_text(errors="replace")[-6000:] if self._output.exists() else ""

    def _arm(self, fault: Fault) -> None:
        """Writes the orders of a fault, the last step first, since its steps follow each other. Each file appears
        whole, by a rename."""
        assert self._driver is not None
        who = {"worker": "self", "driver": str(-self._driver.pid), "broker": str(self.broker.pid)}
        if any("executor" in victims for victims in fault.values()):
            executors = eventually(self._executors, what="an executor")
            who["executor"] = str(executors[0])
        for step in reversed(list(fault)):
            victims = " ".join(who[name] for name in fault[step].split())
            hidden = self.faults_directory / f".{step}"
            hidden.write_text(victims)
            hidden.rename(self.faults_directory / step)

    def _executors(self) -> list[int]:
        """Process ids of the JVMs that run this driver's tasks, if they are processes of their own."""
        assert self._driver is not None
        sessions = {self._driver.pid, *self._workers}
        found = []
        for process in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                if b"CoarseGrainedExecutorBackend" in (process / "cmdline").read_bytes():
                    session = int((process / "stat").read_text().rpartition(")")[2].split()[3])
                    if session in sessions:
                        found.append(int(process.name))
        return sorted(found)

    def _keep_running(self, armed: Fault | None = None) -> int | None:
        """Restarts every process that died. Returns the driver's exit code once it has ended well."""
        if not self.broker.alive:
            self.broker.kill()
            self.broker.start()
        if self._driver is None or self._driver.poll() not in (None, 0):
            self._start_driver()
            if armed is not None:
                # Victims that were restarted have new process ids.
                self._arm({step: who for step, who in armed.items() if (self.faults_directory / step).exists()})
        assert self._driver is not None
        return self._driver.poll()

    def _start_driver(self) -> None:
        self._kill_driver()
        self.runs += 1
        local = self.directory / f"local-{self.runs}"
        story = {
            "bootstrap": self.broker.bootstrap,
            "topic": self.topic,
            "lines": str(self.lines.directory),
            "checkpoint": str(self.checkpoint),
            "stop": str(self.directory / "stop"),
            "local": str(local),
            "run": f"run-{self.runs}",
            **self._story,
        }
        environment = {
            **os.environ,
            **self._faults,
            "PYSPARK_PYTHON": sys.executable,
            "SPARK_LOCAL_IP": "127.0.0.1",
        }
        with self._output.open("ab") as output:
            self._driver = subprocess.Popen(
                [sys.executable, str(DRIVER), json.dumps(story)],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env=environment,
                cwd=self.directory,
                start_new_session=True,
            )

    def _kill_driver(self) -> None:
        """Kills the driver with its process group, so that no JVM is left of a driver that died alone."""
        driver, self._driver = self._driver, None
        if driver is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(driver.pid, signal.SIGKILL)
            driver.wait(30)
