"""Reports of a failing pipeline: at the end of its run, and by `status` afterwards."""

import json
import re
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import pytest
from py4j.protocol import Py4JError, Py4JNetworkError
from pyspark import SparkContext
from tests.deadline import eventually
from typer.testing import CliRunner

from cordwood.cli.app import app
from cordwood.cli.pipeline import foreground
from cordwood.cli.pipeline.target import find
from cordwood.cli.terminal.doing import Doing
from cordwood.client.bootstrap import Bootstrap
from cordwood.model.failure import ExitCode, Failure
from cordwood.pipelines.definition.loading import load_pipeline
from cordwood.pipelines.editions.project import Project
from cordwood.pipelines.editions.run_lock import RunLock
from cordwood.pipelines.execution.sessions import doing_in_words
from cordwood.pipelines.process.spark_failures import end_of_java, refusal_of
from cordwood.pipelines.process.supervisor import Supervisor
from cordwood.spark.java import NoJava

FILE = """
from cordwood.pipelines import pipeline, table, topic

@pipeline(version=1, inputs=topic("orders"), outputs=table("latest"))
def enrich(orders):
    return orders
"""
WORKER = """
import json, os, sys
orders = json.loads(sys.argv[1])
{before}
for event in {events}:
    text = json.dumps({{"pipeline": "enrich", "edition": "v1", **event}}) + chr(10)
    os.write(orders["events"], text.encode())
os._exit({code})
"""
BATCH = {
    "event": "batch",
    "batch": 0,
    "at_ms": 0,
    "rows_in": 1,
    "rows_out": {},
    "repeated": [],
    "quarantined": 0,
    "lag": 0,
    "duration_ms": 1,
}


class Run:
    """`cordwood pipeline run` with a worker that obeys the test, in a real process."""

    def __init__(self, directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.directory = directory
        self._monkeypatch = monkeypatch
        (directory / "enrich.py").write_text(FILE)
        self.state = Project(directory / "project").state("enrich")
        self.state.begin(load_pipeline(directory / "enrich.py"), starting="earliest", now_ms=1)

    def __call__(self, *events: Mapping[str, object], code: int, before: str = "") -> None:
        worker = self.directory / "worker.py"
        worker.write_text(WORKER.format(events=repr(list(events)), code=code, before=before))
        command = [sys.executable, str(worker)]
        self._monkeypatch.setattr(foreground, "Supervisor", partial(Supervisor, command=command))
        edition = self.state.edition("v1")
        lock = RunLock(self.state.edition_directory("v1") / "running")
        lock.take("it", 1)
        try:
            foreground.run_in_foreground(
                find("enrich", str(self.directory / "project")),
                edition,
                lock,
                bootstrap=Bootstrap("127.0.0.1:1"),
                once=True,
                replay=False,
                max_restarts=0,
                as_json=False,
            )
        finally:
            lock.release()

    def status(self) -> str:
        result = CliRunner().invoke(app, ["pipeline", "status", "enrich", "-d", str(self.directory / "project")])
        assert result.exit_code == ExitCode.DONE, result.output
        return result.stdout


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    return Run(tmp_path, monkeypatch)


def test_status_says_that_a_run_failed_and_why_until_a_batch_is_done(run: Run) -> None:
    assert "stopped" in run.status()
    failed = {"event": "failed", "code": "OVER_BUDGET", "message": "12 poison records", "hint": "mend the data"}
    with pytest.raises(Failure, match="12 poison records") as failure:
        run(failed, code=3)
    assert failure.value.exit_code == ExitCode.PROBLEM_FOUND
    said = run.status()
    assert "stopped" not in said
    assert "failed" in said
    assert ": 12 poison records" in said
    assert "hint: mend the data" in said
    listed = json.loads(
        CliRunner().invoke(app, ["pipeline", "status", "enrich", "-d", str(run.directory / "project"), "--json"]).stdout
    )
    assert listed["editions"][0]["failure"]["code"] == "OVER_BUDGET"
    run(BATCH, {"event": "ended", "reason": "all that there was is read"}, code=0)
    said = run.status()
    assert "stopped" in said
    assert "12 poison records" not in said


def test_what_goes_on_before_the_first_batch_is_said_on_standard_error(
    run: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    doing = {"event": "doing", "text": "starting Java and Spark"}
    run(doing, BATCH, {"event": "ended", "reason": "stopped"}, code=0)
    said = capsys.readouterr()
    assert said.err.splitlines()[0] == "enrich v1: starting Java and Spark …"
    assert said.out.splitlines()[-1] == "enrich v1: stopped"


def test_the_first_signal_says_that_the_batch_is_finished_first_and_how_to_end_at_once(
    run: Run, capfd: pytest.CaptureFixture[str]
) -> None:
    # The worker of this test asks for its end itself, and ends with its standard input.
    end = "os.kill(os.getppid(), 15); sys.stdin.read()"
    run(BATCH, {"event": "ended", "reason": "stopped"}, code=0, before=end)
    said = capfd.readouterr().err.splitlines()
    assert said[0] == "enrich v1: ending after the batch under way; once more ends it at once …"


def test_a_step_that_takes_long_says_so_again_until_the_next_line_is_due(capsys: pytest.CaptureFixture[str]) -> None:
    said = ""

    def said_twice() -> bool:
        nonlocal said
        said += capsys.readouterr().err
        return said.count("\n") >= 2

    with Doing(again_after_s=0.01) as doing:
        doing.show("The first batch is under way …")
        eventually(said_twice, what="a second line")
        doing.hide()
        capsys.readouterr()
        time.sleep(0.05)
        assert capsys.readouterr().err == ""
    assert re.fullmatch(r"The first batch is under way …\n(The first batch is under way … \d+ s\n)+", said)


@pytest.mark.parametrize(
    ("message", "said"),
    [
        ("Initializing sources", "starting the source"),
        ("Getting offsets from PythonMicroBatchStream", "asking the broker how far the log goes"),
        ("Processing new data", "the first batch is under way"),
        ("Stopped", None),
    ],
)
def test_what_spark_does_is_said_in_words(message: str, said: str | None) -> None:
    assert doing_in_words(message) == said


def test_a_state_that_does_not_fit_is_refused_with_what_to_do() -> None:
    failure = RuntimeError(
        "[STREAM_FAILED] Query … terminated with exception: [STATE_STORE_KEY_SCHEMA_NOT_COMPATIBLE] Provided key "
        "schema does not match existing state key schema."
    )
    refusal = refusal_of(failure, "sums", "v1", "sums.py")
    assert refusal is not None
    assert refusal.code == "STATE_DOES_NOT_FIT"
    assert "the state of edition v1 of sums was built by another query" in refusal.message
    assert "`cordwood pipeline run sums` goes on with that one" in refusal.hint
    assert "`cordwood pipeline replay sums.py` builds tables and state anew" in refusal.hint


def test_what_is_not_installed_is_refused_and_what_may_pass_is_not() -> None:
    missing = refusal_of(ModuleNotFoundError("No module named 'pyspark'", name="pyspark"), "p", "v1", "p.py")
    assert missing is not None
    assert (missing.code, missing.message) == ("NO_SPARK", "pyspark is not installed")
    assert refusal_of(NoJava("Spark needs Java 17 or newer"), "p", "v1", "p.py") is not None
    assert refusal_of(ModuleNotFoundError("No module named 'theirs'", name="theirs"), "p", "v1", "p.py") is None
    assert refusal_of(RuntimeError("the broker is away"), "p", "v1", "p.py") is None


def test_a_killed_java_is_said_in_words(monkeypatch: pytest.MonkeyPatch) -> None:
    java = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    monkeypatch.setattr(SparkContext, "_gateway", SimpleNamespace(proc=java))
    java.send_signal(signal.SIGKILL)
    for failure in (Py4JError("An error occurred while calling o56.isActive"), Py4JNetworkError("Answer is empty")):
        assert end_of_java(failure) == ("Spark's Java process was killed (signal 9, by the system if memory ran out)")
    assert end_of_java(ValueError("of the function's own")) is None


def test_while_spark_starts_inside_a_command_its_noise_is_hidden_and_the_command_is_heard() -> None:
    program = """
import os, sys
import cordwood.pipelines.execution.sessions as sessions
from cordwood.cli.pipeline.quiet_spark import quiet_session

def session(app_name, settings):
    os.write(2, b"WARN NativeCodeLoader\\n")
    print("Starting Java and Spark … 5 s", file=sys.stderr)

sessions.pipeline_session = session
quiet_session("compare", {})
print("done", file=sys.stderr)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)
    assert done.stderr == "Starting Java and Spark … 5 s\ndone\n"
