"""A query with its checkpoint on a disk that loses its power, together with the driver, at a step of the sink, and goes
on.

The broker and its log are elsewhere and live on. The story owns the driver's process, and leaves none behind.
"""

import subprocess
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

from deltalake import DeltaTable
from tests.broker_process import EXECUTABLE
from tests.crash.mounts import LoopDisk
from tests.deadline import eventually
from tests.spark.conftest import Record, produce
from tests.spark.faulty_driver import FaultyDriver
from tests.spark.sink_stories import committed, values

from cordwood.pipelines.editions.project import Project, table_path
from cordwood.spark.sink.steps import Step

CHECKPOINT = "queries/checkpoint"
TORN = ("Incomplete log file", "repair-checkpoint")
"""Words of Spark about a file of its checkpoint that a power cut left empty, with which it does not start; and words of
our refusal, which name the way out."""


class PowerCutStory:
    """A power cut under a query of the sink."""

    def __init__(
        self, directory: Path, disk: LoopDisk, bootstrap: str, source: str, target: str, *, stateful: bool
    ) -> None:
        self._directory = directory
        self._disk = disk
        self._bootstrap = bootstrap
        self._source = source
        self._target = target
        self._stateful = stateful
        self._rows: list[str] = []
        self._driver = FaultyDriver(directory, {"bootstrap": bootstrap, **self._query()})

    def add(self, count: int) -> None:
        rows = [f"row {len(self._rows) + number:04d}" for number in range(count)]
        produce(self._bootstrap, self._source, [Record(row.encode()) for row in rows])
        self._rows += rows

    def run(self) -> None:
        """Runs the query to the end of its source. If Spark refuses an empty file, the checkpoint is repaired as the
        docs say."""
        failure = self._driver.run()
        if failure is not None and any(words in failure for words in TORN):
            self._repair()
            failure = self._driver.run()
        assert failure is None, f"{failure}\n{self._driver.said()}"

    def _repair(self) -> None:
        command = ["spark", "repair-checkpoint", str(self._checkpoint)]
        done = subprocess.run(
            [str(EXECUTABLE), *command, "--bootstrap-server", self._bootstrap],
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )
        assert done.returncode == 0, f"{done.stdout}{done.stderr}"

    def run_and_cut_at(self, step: Step) -> None:
        """Cuts the power when the query comes to the step."""
        self._driver.run_with(step, f"power:{self._disk.path}", "driver")
        self._machine_restarts()

    def cut(self) -> None:
        """Cuts the power while the query is idle: Spark has noted its last batch, and not synced the note."""
        self._disk.cut_power()
        self._machine_restarts()

    def check(self) -> None:
        """Asserts that every row is counted or written once, and that no written row is written again."""
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
        # Every batch has even and odd rows, so that a repeated count is a batch that was written twice.
        assert all(len(each) == len(set(each)) for each in counts.values()), f"written twice: {dict(counts)}"

    def end(self) -> None:
        self._driver.end()

    @property
    def _checkpoint(self) -> Path:
        return self._disk.path / CHECKPOINT

    def _query(self) -> dict[str, Any]:
        """The orders of the driver."""
        return {
            "source": self._source,
            "target": self._target,
            "checkpoint": f"file://{self._checkpoint}",
            "stateful": self._stateful,
        }

    def _machine_restarts(self) -> None:
        self.end()
        eventually(self._unmounted, what="the end of all who use the disk")
        self._disk.mount()

    def _unmounted(self) -> bool:
        try:
            self._disk.unmount()
        except subprocess.CalledProcessError:
            return False
        return True


class PipelinePowerCutStory(PowerCutStory):
    """A power cut under a pipeline with its directory on the disk: checkpoint, a growing table, a table by key; and to
    a topic."""

    _PIPELINE = """
from cordwood.pipelines import *

@pipeline("cut", version=1, inputs=topic("{source}", value=text()),
          outputs={{"all": table("all"), "latest": table("latest", key="value"),
                   "out": topic("{target}", value=text())}})
def cut(rows):
    return {{"all": rows, "latest": rows, "out": rows}}
"""

    def __init__(self, directory: Path, disk: LoopDisk, bootstrap: str, source: str, target: str) -> None:
        self._pipelines = disk.path / "pipelines"
        self._file = directory / "cut.py"
        super().__init__(directory, disk, bootstrap, source, target, stateful=False)
        self._file.write_text(self._PIPELINE.format(source=source, target=target))

    def check(self) -> None:
        """Asserts that every row is in every output once."""
        super().check()
        for name in ("all", "latest"):
            rows = DeltaTable(table_path(name, self._pipelines)).to_pyarrow_table().column("value").to_pylist()
            assert Counter(rows) == dict.fromkeys(self._rows, 1), name

    @property
    def _checkpoint(self) -> Path:
        return Project(self._pipelines).state("cut").checkpoint("v1")

    def _query(self) -> dict[str, Any]:
        return {"pipeline": str(self._file), "directory": str(self._pipelines)}
