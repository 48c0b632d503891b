"""The supervisor with real worker processes that obey a test, instead of Spark."""

import re
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest
from tests.deadline import eventually

from cordwood.client.bootstrap import Bootstrap
from cordwood.model.back_off import BackOff
from cordwood.pipelines.definition.errors import WrongState
from cordwood.pipelines.editions.run_lock import RunLock, holder
from cordwood.pipelines.process.supervisor import Supervisor
from cordwood.pipelines.process.worker import GO_ON, Orders
from cordwood.security.connection_settings import ClientLogIn, Security

ORDERS = Orders(
    file="p.py",
    pipeline="p",
    directory=".",
    edition="v1",
    once=False,
    replay=False,
    beside=".",
    events=-1,
)
QUICK = BackOff(10, 20)
PREAMBLE = """
import json, os, sys, time
from pathlib import Path
orders = json.loads(sys.argv[1])
connection = json.loads(sys.stdin.readline())
def tell(**event):
    os.write(orders["events"], (json.dumps({"pipeline": "p", "edition": "v1", **event}) + "\\n").encode())
def fail(code, message="it broke"):
    tell(event="failed", code="FAILED", message=message, hint="")
    os._exit(code)
tries = Path("tries")
count = int(tries.read_text()) + 1 if tries.exists() else 1
tries.write_text(str(count))
"""


class Stage:
    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.told: list[dict[str, Any]] = []
        self.python_bytes = 1 << 40
        self.lock = RunLock(directory / "running")
        self.lock.take("p", 0)

    def supervisor(
        self,
        worker: str,
        max_restarts: int = 8,
        back_off: BackOff = QUICK,
        when_checked: Callable[[], None] = lambda: None,
    ) -> Supervisor:
        path = self.directory / "worker.py"
        path.write_text(PREAMBLE + dedent(worker))
        command = [sys.executable, str(path)]
        log = self.directory / "worker.log"
        tell = self.told.append
        return Supervisor(
            ORDERS,
            Bootstrap("localhost:9092", Security(sasl=ClientLogIn("SCRAM-SHA-256", "alice", "s3cret"))),
            self.lock,
            log,
            lambda event: tell(dict(event)),
            max_restarts,
            back_off,
            python_bytes=self.python_bytes,
            when_checked=when_checked,
            command=command,
        )

    def kinds(self) -> list[str]:
        return [event["event"] for event in self.told]


@pytest.fixture
def stage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Stage:
    monkeypatch.chdir(tmp_path)
    return Stage(tmp_path)


def test_a_failed_worker_is_started_again_until_it_is_done(stage: Stage) -> None:
    made = stage.supervisor("fail(1) if count < 3 else tell(event='ended', reason='done')")
    assert made.run() is None
    assert [event.get("again_in_s") for event in stage.told] == [0.01, 0.02, None]
    assert stage.kinds() == ["failed", "failed", "ended"]


def test_a_worker_gets_the_password_and_its_arguments_have_none(stage: Stage) -> None:
    made = stage.supervisor(
        "own = Path('/proc/self/cmdline').read_text() + Path('/proc/self/environ').read_text()\n"
        "tell(event='ended', reason=f\"{connection['sasl.password']} {'s3cret' in own}\")"
    )
    assert made.run() is None
    assert stage.told[0]["reason"] == "s3cret False"


def test_failures_in_a_row_are_given_up_and_a_batch_done_begins_the_count_again(stage: Stage) -> None:
    made = stage.supervisor("tell(event='batch') if count == 2 else None\nfail(1)", max_restarts=2)
    failure = made.run()
    assert failure is not None
    assert failure["message"] == "it broke (given up after 2 restarts in a row)"
    assert int(Path("tries").read_text()) == 4


def test_a_refusal_is_not_tried_again(stage: Stage) -> None:
    failure = stage.supervisor("fail(3, 'over budget')").run()
    assert failure is not None
    assert (failure["message"], Path("tries").read_text()) == ("over budget", "1")


def test_a_worker_that_has_checked_the_rules_goes_on_when_all_is_prepared(stage: Stage) -> None:
    prepared: list[str] = []
    made = stage.supervisor(
        """
        tell(event='checked')
        line = sys.stdin.readline().strip()
        fail(1) if count == 1 else tell(event='ended', reason=line)
        """,
        when_checked=lambda: prepared.append("all"),
    )
    assert made.run() is None
    assert prepared == ["all", "all"], "the worker of another try checks and waits, too"
    assert (stage.kinds(), stage.told[-1]["reason"]) == (["failed", "ended"], GO_ON)


def test_what_cannot_be_prepared_ends_the_worker(stage: Stage) -> None:
    def cannot() -> None:
        raise WrongState("the topic has records already")

    with pytest.raises(WrongState, match="has records already"):
        stage.supervisor("tell(event='checked')\nsys.stdin.readline()\nfail(1)", when_checked=cannot).run()
    assert stage.kinds() == []


def test_a_worker_that_dies_without_a_word_is_told_of(stage: Stage) -> None:
    failure = stage.supervisor("print('last words', flush=True); os.kill(os.getpid(), 9)", max_restarts=0).run()
    assert failure is not None
    assert "the worker was ended by signal 9" in failure["message"]
    assert "last words" in (stage.directory / "worker.log").read_text()


def test_what_a_killed_worker_leaves_behind_is_gone_before_the_next_one_starts(stage: Stage) -> None:
    made = stage.supervisor(
        """
        import signal, subprocess
        java = Path("java")
        if count == 1:
            java.write_text(str(subprocess.Popen(["sleep", "1000"]).pid))
            os.kill(os.getpid(), signal.SIGKILL)
        def is_gone():
            try:
                return Path("/proc", java.read_text(), "stat").read_text().split()[2] == "Z"
            except OSError:
                return True
        for _ in range(6000):  # the signal is sent; the system may take a moment
            if is_gone():
                break
            time.sleep(0.01)
        tell(event="ended", reason="gone" if is_gone() else "still there")
        """,
    )
    assert made.run() is None
    assert stage.told[-1]["reason"] == "gone"


def test_the_log_of_a_worker_that_runs_on_and_on_stays_short(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cordwood.pipelines.process.worker_process.MAX_LOG_BYTES", 1000)
    worker = """
    for batch in range(20):
        print(f"{batch:0500}", flush=True)
        tell(event="batch", batch=batch)
        while not Path(f"heard-{batch}").exists():
            time.sleep(0.001)
    """
    made = stage.supervisor(worker)
    tell = made._tell

    def heard(event: Any) -> None:
        tell(event)
        Path(f"heard-{event['batch']}").touch()

    monkeypatch.setattr(made, "_tell", heard)
    assert made.run() is None
    logs = [stage.directory / name for name in ("worker.log", "worker.old.log")]
    assert all(path.stat().st_size <= 2000 for path in logs)
    assert f"{19:0500}" in "".join(path.read_text() for path in logs)


def test_a_worker_that_dies_in_the_middle_of_a_word_is_started_again(stage: Stage) -> None:
    worker = """
    if count == 1:
        os.write(orders["events"], b'{"event": "bat')
        os.kill(os.getpid(), 9)
    tell(event="ended", reason="done")
    """
    assert stage.supervisor(worker).run() is None
    assert stage.kinds() == ["failed", "ended"]


WAITS = """
tell(event="started")
while os.read(0, 100):
    pass
tell(event="ended", reason="stopped")
"""


def running(made: Supervisor) -> tuple[threading.Thread, list[Any]]:
    result: list[Any] = []
    thread = threading.Thread(target=lambda: result.append(made.run()))
    thread.start()
    return thread, result


def test_a_stop_lets_the_worker_end_by_itself(stage: Stage) -> None:
    made = stage.supervisor(WAITS)
    thread, result = running(made)
    eventually(stage.kinds, to_be=["started"])
    assert holder(stage.directory / "running") is not None
    made.stop()
    thread.join(60)
    assert (result, stage.kinds()) == ([None], ["started", "ended"])


@pytest.mark.parametrize("end", [Supervisor.stop, Supervisor.kill])
def test_a_stop_ends_the_wait_before_the_next_try(stage: Stage, end: Callable[[Supervisor], None]) -> None:
    made = stage.supervisor("fail(1)", back_off=BackOff(3_600_000, 3_600_000))
    thread, result = running(made)
    eventually(stage.kinds, to_be=["failed"])
    end(made)
    thread.join(60)
    assert result == [None]


def test_a_worker_that_does_not_listen_is_killed(stage: Stage) -> None:
    made = stage.supervisor("tell(event='started'); time.sleep(3600)")
    thread, result = running(made)
    eventually(stage.kinds, to_be=["started"])
    made.kill()
    thread.join(60)
    assert result == [None]


GROWS = """
import subprocess
grown = subprocess.Popen([sys.executable, "-c", "kept = bytearray(300 << 20); import time; time.sleep(3600)"])
"""


def test_a_python_process_that_takes_too_much_is_killed_and_the_worker_is_told_why(stage: Stage) -> None:
    stage.python_bytes = 200 << 20
    made = stage.supervisor(
        GROWS
        + """
said = sys.stdin.readline()
code = grown.wait()
tell(event="ended", reason=json.loads(said)["why"], code=code)
"""
    )
    assert made.run() is None
    (ended,) = stage.told
    assert ended["code"] == -9
    assert re.fullmatch(
        r"a Python worker was killed: it had taken \S+ MiB of memory, and all Python processes of this Spark \S+ MiB, "
        r"where --python-memory allows 200.0 MiB",
        ended["reason"],
    )


def test_a_worker_that_takes_too_much_itself_is_killed_and_started_again(stage: Stage) -> None:
    stage.python_bytes = 200 << 20
    made = stage.supervisor("kept = bytearray(300 << 20) if count == 1 else None\nif kept: time.sleep(3600)")
    assert made.run() is None
    (failed,) = stage.told
    assert "the worker, in which functions build their plans, was killed: it had taken" in failed["message"]
