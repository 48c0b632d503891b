"""The supervisor of served pipelines with real worker processes that obey a test, instead of Spark."""

import json
import sys
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest
from tests.deadline import eventually
from typer.testing import CliRunner

from cordwood.cli.app import app
from cordwood.client.bootstrap import Bootstrap
from cordwood.model.back_off import BackOff
from cordwood.pipelines.editions.control import Command, Request
from cordwood.pipelines.editions.control import Serving as Control
from cordwood.pipelines.editions.run_lock import RunLock
from cordwood.pipelines.serving.served import Stage
from cordwood.pipelines.serving.serving import Serving
from cordwood.pipelines.serving.supervisor import ServingSupervisor

WORKER = """
import json, os, sys
from pathlib import Path
events = json.loads(sys.argv[1])["events"]
def tell(**event):
    os.write(events, (json.dumps(event) + "\\n").encode())
def ended(name, has_read_all):
    tell(event="ended", pipeline=name, edition="v1", version=1, reason="it", has_read_all=has_read_all)
lives = Path("lives")
life = int(lives.read_text()) + 1 if lives.exists() else 1
lives.write_text(str(life))
there = set()
sys.stdin.readline()  # the connection
for line in sys.stdin:
    if line.strip() == "end":
        break
    order = json.loads(line)
    name = order.get("pipeline")
    if order["order"] == "Survey":
        for file in order["files"]:
            tell(event="loading", file=file)
            tell(event="found", pipeline=Path(file).stem, file=file, after=[], every_ms=None, spark={})
        tell(event="surveyed")
    if order["order"] == "BeginQuery":
        there.add(name)
        tell(event="loaded", pipeline=name, edition="v1", tried_from="", every_ms=None)
        tell(event="up", pipeline=name)
        begun(name)
    if order["order"] == "EndQuery":
        there.remove(name)
        ended(name, False)
for name in there:
    ended(name, False)
"""


class Play:
    """A serving process in a thread, whose worker does in `begun` what the test says."""

    def __init__(self, directory: Path, begun: str, *, once: bool = False, python_bytes: int = 1 << 40) -> None:
        script = directory / "worker.py"
        head, loop, tail = WORKER.partition("there = set()")
        script.write_text(f"{head}def begun(name):\n    {dedent(begun)}\n{loop}{tail}")
        self.control = Control(directory)
        self.control.directory.mkdir(exist_ok=True)
        self.lock = RunLock(self.control.lock)
        self.lock.take("all", 0)
        self.told: list[dict[str, Any]] = []
        self.serving = Serving(
            ["a.py", "b.py"],
            once=once,
            max_restarts=3,
            at_once=2,
            back_off=BackOff(1, 2),
            stopped=self.control.stopped_before(),
        )
        self.supervisor = ServingSupervisor(
            self.serving,
            self.control,
            lambda event: self.told.append(dict(event)),
            directory=directory,
            bootstrap=Bootstrap(""),
            once=once,
            python_bytes=python_bytes,
            command=(sys.executable, str(script)),
        )
        self.thread = threading.Thread(target=self.supervisor.run, daemon=True)
        self.thread.start()

    def stages(self) -> list[Stage]:
        return [served.stage for served in self.serving.pipelines.values()]

    def end(self, by: Callable[[ServingSupervisor], None] = ServingSupervisor.stop) -> None:
        by(self.supervisor)
        self.thread.join(60)
        assert not self.thread.is_alive()
        self.lock.release()


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_commands_stop_start_and_reload_one_while_the_other_runs(tmp_path: Path) -> None:
    stage = Play(tmp_path, "pass")
    eventually(stage.stages, to_be=[Stage.RUNNING] * 2)
    stage.control.stop("a", 60)
    assert stage.stages() == [Stage.STOPPED, Stage.RUNNING]
    assert stage.control.ask_and_await(Command.RELOAD, "b", 60)["stage"] == "running"
    stage.end()
    assert stage.control.pipelines() == {}, "nobody serves them any more"
    again = Play(tmp_path, "pass")
    eventually(again.stages, to_be=[Stage.STOPPED, Stage.RUNNING])
    assert again.control.ask_and_await(Command.START, "a", 60)["stage"] == "running"
    again.end()


def test_a_request_that_nobody_took_is_not_done_by_the_next_process(tmp_path: Path) -> None:
    Control(tmp_path).ask(Command.STOP, "a")
    stage = Play(tmp_path, "pass")
    eventually(stage.stages, to_be=[Stage.RUNNING] * 2)
    stage.end()


def test_a_request_is_removed_when_the_state_tells_what_came_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A command that waits for the removal would take an older failure for its own."""
    stage = Play(tmp_path, "pass")
    eventually(stage.stages, to_be=[Stage.RUNNING] * 2)
    read: list[str] = []
    remove = stage.control.remove

    def read_and_remove(requests: Sequence[Request]) -> None:
        read.extend(stage.control.pipelines()[request.pipeline]["stage"] for request in requests)
        remove(requests)

    monkeypatch.setattr(stage.control, "remove", read_and_remove)
    stage.control.ask(Command.STOP, "a")
    stage.control.await_stage("a", ("stopped",), 60)
    eventually(lambda: read, to_be=["ending"])
    stage.end()


def test_a_worker_that_dies_is_followed_by_another_one(tmp_path: Path) -> None:
    stage = Play(tmp_path, "os._exit(1) if name == 'b' and life < 3 else None")
    eventually(
        lambda: (Path("lives").exists() and Path("lives").read_text(), stage.stages()), to_be=("3", [Stage.RUNNING] * 2)
    )
    assert [event["code"] for event in stage.told if event["event"] == "failed"] == ["WORKER_DIED"] * 2
    assert [served.restarts for served in stage.serving.pipelines.values()] == [2, 2]
    stage.end()


def test_once_ends_when_all_are_done(tmp_path: Path) -> None:
    stage = Play(tmp_path, "ended(name, True); there.remove(name)", once=True)
    stage.thread.join(60)
    assert (stage.stages(), stage.serving.succeeded) == ([Stage.DONE] * 2, True)
    stage.lock.release()


def test_a_worker_that_does_not_listen_is_killed(tmp_path: Path) -> None:
    stage = Play(tmp_path, "import time; time.sleep(3600)")
    eventually(lambda: stage.stages()[:1], to_be=[Stage.RUNNING])
    stage.end(ServingSupervisor.kill)


def test_a_worker_that_takes_too_much_memory_is_followed_by_another_one(tmp_path: Path) -> None:
    begun = "globals().update(kept=bytearray(300 << 20)) if life == 1 and name == 'b' else None"
    play = Play(tmp_path, begun, python_bytes=200 << 20)
    eventually(lambda: [event["message"] for event in play.told if event["event"] == "failed"])
    eventually(lambda: (Path("lives").read_text(), play.stages()), to_be=("2", [Stage.RUNNING] * 2))
    (failed,) = [event for event in play.told if event["event"] == "failed"]
    assert "was killed: it had taken" in failed["message"]
    play.end()


def test_commands_know_a_served_pipeline_without_an_edition(tmp_path: Path) -> None:
    play = Play(tmp_path, "pass")
    eventually(play.stages, to_be=[Stage.RUNNING] * 2)
    done = CliRunner().invoke(app, ["pipeline", "list", "--json", "-d", str(tmp_path)])
    assert {each["pipeline"]: each["served"] for each in json.loads(done.stdout)} == {
        "a": "running in serve",
        "b": "running in serve",
    }
    done = CliRunner().invoke(app, ["pipeline", "stop", "a", "-d", str(tmp_path)])
    assert done.exit_code == 0, done.output
    assert play.stages() == [Stage.STOPPED, Stage.RUNNING]
    play.end()
