"""`cordwood pipeline serve` on the stage of a test: a directory of pipelines, and the process that serves them."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from deltalake import DeltaTable
from tests.deadline import eventually
from tests.spark.conftest import Record

from cordwood.client.bootstrap import Bootstrap
from cordwood.pipelines.editions.project import table_path
from cordwood.pipelines.execution.reading_here import committed_records

WITHIN_S = 800
FILE = """
from cordwood.pipelines import *

@pipeline("{name}", version={version}, trigger="100 milliseconds", inputs={inputs}, outputs={outputs}, every={every},
          spark={{"spark.master": "{master}", "spark.ui.enabled": "false", "spark.driver.memory": "512m",
                 "spark.executor.memory": "512m"}})
def copied(numbers):
    return {result}
"""
NUMBERS = 'value=json("n int not null")'


class Serve:
    """A directory of pipelines, and the process that serves them."""

    def __init__(self, directory: Path, bootstrap: str) -> None:
        self.directory = directory
        self.files = directory / "files"
        self.files.mkdir()
        self.state = directory / "state"
        self.output = directory / "events"
        self.environment = {**os.environ, "CORDWOOD_BOOTSTRAP": bootstrap, "SPARK_LOCAL_IP": "127.0.0.1"}
        self.process: subprocess.Popen[bytes] | None = None

    def write(self, name: str, inputs: str, outputs: str, *, result: str = "numbers", **options: Any) -> None:
        facts = {"name": name, "version": 1, "every": None, "master": "local[2]", **options}
        text = FILE.format(inputs=inputs, outputs=outputs, result=result, **facts)
        (self.files / f"{name}.py").write_text(text)

    def command(self, *arguments: str) -> list[str]:
        return [sys.executable, "-m", "cordwood.cli", "pipeline", *arguments, "-d", str(self.state)]

    def start(self, *options: str) -> None:
        with open(self.output, "ab") as out:
            self.process = subprocess.Popen(
                self.command("serve", str(self.files), "--json", *options),
                stdout=out,
                stderr=subprocess.STDOUT,
                cwd=self.directory,
                env=self.environment,
                start_new_session=True,
            )

    def run(self, *arguments: str) -> str:
        done = subprocess.run(
            self.command(*arguments), cwd=self.directory, env=self.environment, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    def make_topic(self, name: str) -> None:
        command = [sys.executable, "-m", "cordwood.cli", "topic", "create", name]
        subprocess.run(command, cwd=self.directory, env=self.environment, capture_output=True, check=True)

    def events(self, kind: str, name: str | None = None) -> list[dict[str, Any]]:
        lines = self.output.read_text().splitlines()
        found = [json.loads(line) for line in lines if line.startswith("{") and line.endswith("}")]
        return [each for each in found if each["event"] == kind and name in (None, each.get("pipeline"))]

    def wait(self) -> int:
        assert self.process is not None
        return self.process.wait(WITHIN_S)

    def rows(self, table: str) -> list[int]:
        try:
            found = DeltaTable(table_path(table, self.state)).to_pyarrow_table()
        except Exception:
            return []  # the table has not been made yet
        return sorted(found.column("n").to_pylist())

    def has_rows(self, table: str, numbers: range) -> None:
        def there() -> list[int]:
            assert self.process is not None
            assert self.process.poll() is None, self.output.read_text()[-4000:]
            return self.rows(table)

        eventually(there, to_be=list(numbers), within_s=WITHIN_S, what=f"rows of {table}", every_s=0.5)


@contextmanager
def serving(directory: Path, bootstrap: str) -> Iterator[Serve]:
    """Leaves no serving process behind."""
    made = Serve(directory, bootstrap)
    try:
        yield made
    finally:
        if made.process is not None and made.process.poll() is None:
            made.process.kill()
            made.process.wait()


def numbers(count: range) -> list[Record]:
    return [Record(json.dumps({"n": number}).encode()) for number in count]


def worker_of(serve: Serve) -> int:
    return int(serve.events("started")[-1]["pid"])


def is_gone(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


def written(topic: str, bootstrap: str) -> list[int]:
    """The numbers in the committed records of a topic."""
    batches = committed_records(topic, Bootstrap(bootstrap), ("value",))
    return sorted(json.loads(row["value"])["n"] for batch in batches for row in batch.to_pylist())
