"""The exit codes of `cordwood pipeline serve --once` that docs/serving-pipelines.md names, for schedulers.

Where a pipeline fails or a file is wrong while others are done, and where all have read what there was, Spark runs:
tests/spark has these.
"""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from tests.cli.conftest import Cordwood
from tests.conftest import MakeTopic, RunningBroker
from tests.deadline import eventually

from cordwood.model.failure import ExitCode
from cordwood.pipelines.editions.control import Serving
from cordwood.pipelines.editions.run_lock import RunLock

FILE = """from cordwood.pipelines import *

@pipeline("{name}", version=1, inputs=topic("{topic}"), outputs=topic("{name}.out"))
def run(rows):
    return rows
"""


def failed(cordwood_cli: Cordwood, *arguments: object) -> tuple[int, dict[str, str]]:
    """The exit code and the error, which comes after lines of progress."""
    result = cordwood_cli.run(*arguments, "--json")
    error: dict[str, str] = json.loads(result.stderr.splitlines()[-1])["error"]
    return result.exit_code, error


@pytest.fixture
def files(tmp_path: Path) -> Path:
    made = tmp_path / "files"
    made.mkdir()
    return made


@pytest.fixture
def serve(files: Path, tmp_path: Path) -> tuple[object, ...]:
    return ("pipeline", "serve", files, "--once", "-d", tmp_path / "state")


def test_0_if_all_that_are_left_were_stopped_before(
    cordwood_cli: Cordwood, files: Path, serve: tuple[object, ...], make_topic: MakeTopic, tmp_path: Path
) -> None:
    (files / "one.py").write_text(FILE.format(name="one", topic=make_topic()))
    control = Serving(tmp_path / "state")
    control.directory.mkdir(parents=True)
    control.report({"one": {"stage": "stopped"}})
    assert "stopped" in cordwood_cli(*serve)
    assert not (tmp_path / "state" / "one").exists()


def test_1_if_a_file_does_not_load(cordwood_cli: Cordwood, files: Path, serve: tuple[object, ...]) -> None:
    (files / "wrong.py").write_text("from cordwood.pipelines import *\ndef (\n")
    code, error = failed(cordwood_cli, *serve)
    assert (code, error["code"]) == (ExitCode.FAILED, "PIPELINES_FAILED")
    assert "wrong.py:2: invalid syntax" in error["message"]


def test_1_if_a_process_serves_the_directory_already(
    cordwood_cli: Cordwood, files: Path, serve: tuple[object, ...], make_topic: MakeTopic, tmp_path: Path
) -> None:
    (files / "one.py").write_text(FILE.format(name="one", topic=make_topic()))
    control = Serving(tmp_path / "state")
    control.directory.mkdir(parents=True)
    lock = RunLock(control.lock)
    lock.take("all pipelines", 1)
    code, error = failed(cordwood_cli, *serve)
    lock.release()
    assert (code, error["code"]) == (ExitCode.FAILED, "ALREADY_RUNNING")


def test_1_if_it_is_stopped_before_all_have_read(
    broker: RunningBroker, files: Path, serve: tuple[object, ...], make_topic: MakeTopic, tmp_path: Path
) -> None:
    marker = tmp_path / "loading"
    in_worker = "import sys, pathlib\nwhile sys.argv[0].endswith('worker.py'):\n"
    loading = f"{in_worker}    pathlib.Path('{marker}').touch()\n"
    (files / "one.py").write_text(loading + FILE.format(name="one", topic=make_topic()))
    process = subprocess.Popen(
        [sys.executable, "-m", "cordwood.cli", *map(str, serve)],
        env={**os.environ, "CORDWOOD_BOOTSTRAP": broker.bootstrap},
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        eventually(marker.exists, what="a file that is being loaded")
        process.send_signal(signal.SIGTERM)
        assert process.stderr is not None
        next(line for line in process.stderr if "once more ends them at once" in line)
        process.send_signal(signal.SIGTERM)
        _, said = process.communicate(timeout=240)
    finally:
        process.kill()
        process.wait()
    assert process.returncode == ExitCode.FAILED
    assert "it was stopped before all had read what there was" in said


def test_2_for_a_wrong_command_line(cordwood_cli: Cordwood, serve: tuple[object, ...], tmp_path: Path) -> None:
    assert cordwood_cli.run(*serve, "--metrics").exit_code == ExitCode.USAGE
    assert not (tmp_path / "state").exists()


def test_3_if_no_broker_answers(files: Path, serve: tuple[object, ...], tmp_path: Path) -> None:
    (files / "one.py").write_text(FILE.format(name="one", topic="orders"))
    code, error = failed(Cordwood("127.0.0.1:1"), *serve)  # no server listens there
    assert (code, error["code"]) == (ExitCode.NOT_REACHABLE, "BROKER_NOT_REACHABLE")
    assert not (tmp_path / "state").exists(), "nothing was started"


def test_4_if_there_is_nothing_to_serve(cordwood_cli: Cordwood, files: Path, serve: tuple[object, ...]) -> None:
    code, error = failed(cordwood_cli, *serve)
    assert (code, error["code"]) == (ExitCode.NOT_FOUND, "NOT_FOUND")
    assert "has no Python files" in error["message"]
    (files / "helper.py").write_text("X = 1\n")
    code, error = failed(cordwood_cli, *serve)
    assert (code, error["message"]) == (ExitCode.NOT_FOUND, "no file declares a pipeline")
    (files / "helper.py").unlink()
    files.rmdir()
    code, error = failed(cordwood_cli, *serve)
    assert code == ExitCode.NOT_FOUND
    assert "is no directory" in error["message"]
