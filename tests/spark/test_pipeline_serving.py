"""`cordwood pipeline serve`: several pipelines in one real Spark, with one that fails, kills and commands."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from tests.conftest import MakeTopic, RunningBroker
from tests.deadline import eventually
from tests.spark.conftest import Produce, Record

from cordwood.pipelines.editions.project import table_path
from cordwood.pipelines.execution.reading_here import committed_records

WITHIN_S = 800
FILE = """
from cordwood.pipelines import *

@pipeline("{name}", version={version}, trigger="100 milliseconds", inputs={inputs}, outputs={outputs}, every={every},
          spark={{"spark.master": "local[2]", "spark.ui.enabled": "false", "spark.driver.memory": "512m"}})
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
        facts = {"name": name, "version": 1, "every": None, **options}
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


@pytest.fixture
def serve(tmp_path: Path, broker: RunningBroker) -> Iterator[Serve]:
    made = Serve(tmp_path, broker.bootstrap)
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


def test_one_spark_runs_all_and_survives_its_own_death(
    serve: Serve, broker: RunningBroker, make_topic: MakeTopic, put: Produce
) -> None:
    topic, poisoned = make_topic(), make_topic()
    one, two, bad = (f"{name}-{topic[-6:]}" for name in ("one", "two", "bad"))
    serve.write(
        one,
        f'topic("{topic}", {NUMBERS})',
        f'{{"rows": table("{one}"), "out": topic("{one}.out")}}',
        result='{"rows": numbers, "out": numbers}',
    )
    serve.write(two, f'output("{one}", "{one}.out", {NUMBERS})', f'table("{two}")')
    serve.write(bad, f'topic("{poisoned}", {NUMBERS})', f'table("{bad}")')
    (serve.files / "wrong.py").write_text("def f(:\n")
    (serve.files / "helper.py").write_text("X = 1\n")
    put(topic, numbers(range(3)))
    put(poisoned, [Record(b"no number")])
    serve.start()

    # One is poisoned, one file is wrong, the others run.
    serve.has_rows(two, range(3))
    eventually(lambda: len(serve.events("failed", bad)), to_be=1, within_s=WITHIN_S, what="the poisoned one's end")
    assert serve.events("failed", bad)[0]["code"] == "OVER_BUDGET"
    (wrong,) = serve.events("wrong")
    assert "wrong.py:1" in wrong["message"]
    said = json.loads(serve.run("list", "--json"))
    assert {each["pipeline"]: each["served"] for each in said} == {
        one: "running in serve",
        two: "running in serve",
        bad: "failed in serve",
    }

    # One is stopped, and the other goes on.
    serve.run("stop", two)
    put(topic, numbers(range(3, 6)))
    serve.has_rows(one, range(6))
    assert serve.rows(two) == [0, 1, 2]

    # The worker dies; what was stopped stays so until it is started.
    worker = worker_of(serve)
    os.kill(worker, signal.SIGKILL)
    put(topic, numbers(range(6, 9)))
    serve.has_rows(one, range(9))
    assert serve.rows(two) == [0, 1, 2]
    serve.run("start", two, "--timeout", f"{WITHIN_S}")
    serve.has_rows(two, range(9))
    assert "running in serve, 1 restart" in serve.run("status", one)

    # The serving process dies, and nothing of it stays; the next one goes on.
    assert serve.process is not None
    worker = worker_of(serve)
    serve.process.kill()
    serve.process.wait()
    eventually(lambda: is_gone(worker), within_s=WITHIN_S, what="the end of the worker")
    put(topic, numbers(range(9, 12)))
    serve.start("--once")
    assert serve.wait() == 1, "one is poisoned and one file is wrong"
    assert (serve.rows(one), serve.rows(two)) == (list(range(12)), list(range(12)))
    batches = committed_records(f"{one}.out", broker.bootstrap, ("value",))
    written = [json.loads(row["value"])["n"] for batch in batches for row in batch.to_pylist()]
    assert sorted(written) == list(range(12))


HOGS = """
import os, time
from cordwood.pipelines import *
from pyspark.sql import functions as F

FACTS = dict(version=1, trigger="100 milliseconds", batch_deadline="{deadline}",
             inputs=topic("{topic}", value=json("n int not null")),
             spark={{"spark.master": "local[2]", "spark.ui.enabled": "false", "spark.driver.memory": "512m"}})

@pipeline("loops-{suffix}", outputs=table("loops-{suffix}"), **FACTS)
def loops(numbers):
    @F.udf("int")
    def same(n):
        while os.path.exists("{here}/loops"):
            with open("{here}/loops", "w") as file:
                file.write(str(os.getpid()))
        return n
    return numbers.select(same("n").alias("n"))

@pipeline("hangs-{suffix}", outputs=table("hangs-{suffix}"), **FACTS)
def hangs(numbers):
    while os.path.exists("{here}/hangs"):
        time.sleep(0.1)
    return numbers
"""


def test_one_that_never_ends_is_cancelled_and_the_others_go_on(
    serve: Serve, make_topic: MakeTopic, put: Produce
) -> None:
    topic = make_topic()
    suffix = topic[-6:]
    fine, loops, hangs = (f"{name}-{suffix}" for name in ("fine", "loops", "hangs"))
    markers = [serve.directory / name for name in ("loops", "hangs")]
    for marker in markers:
        marker.touch()
    serve.write(fine, f'topic("{topic}", {NUMBERS})', f'table("{fine}")')
    facts = {"topic": topic, "suffix": suffix, "here": serve.directory}
    (serve.files / "hogs.py").write_text(HOGS.format(deadline="30s", **facts))
    put(topic, numbers(range(3)))
    serve.start()

    def failures(name: str, words: str) -> int:
        return sum(words in each["message"] for each in serve.events("failed", name))

    # A loop in a task: Spark kills the Python worker, and nothing else.
    within = "batch 0 has not ended within 30 s"
    eventually(
        lambda: failures(loops, f"{within}: its jobs were cancelled") > 0, within_s=WITHIN_S, what="the end of it"
    )
    # A loop in the function itself: the worker is started again, and only that pipeline is charged.
    stuck = f"{within}, nor after its jobs were cancelled"
    eventually(lambda: failures(hangs, stuck) > 0, within_s=WITHIN_S, what="the end of the worker")
    put(topic, numbers(range(3, 6)))
    serve.has_rows(fine, range(6))
    assert not serve.events("failed", fine)

    # Their changed file is taken when somebody asks for it.
    for marker in markers:
        marker.unlink()
    (serve.files / "hogs.py").write_text(HOGS.format(deadline="1h", **facts))
    for name in (loops, hangs):
        serve.run("reload", name, "--timeout", f"{WITHIN_S}")
        serve.has_rows(name, range(6))
