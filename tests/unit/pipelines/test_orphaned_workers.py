"""The end of a worker: after its work if its supervisor says so; at once, with all its processes, if that is gone."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from tests.deadline import eventually

from cordwood.pipelines.process.orphans import END, lines_of_supervisor
from cordwood.pipelines.process.worker_process import WorkerProcess

WORKER = """
import subprocess, sys
from pathlib import Path
from cordwood.pipelines.process.orphans import lines_of_supervisor
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
Path("pids.new").write_text(f"{__import__('os').getpid()} {child.pid}")
Path("pids.new").rename("pids")
for line in lines_of_supervisor(sys.stdin):
    pass
child.kill()
child.wait()
Path("ended").touch()
"""
SUPERVISOR = f"""
import sys, time
from pathlib import Path
from cordwood.pipelines.process.worker_process import WorkerProcess
worker = WorkerProcess(lambda events: [sys.executable, "-c", {WORKER!r}], Path("log"), python_bytes=1 << 40)
time.sleep(600)
"""


def is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def test_a_worker_dies_at_once_with_its_processes_when_its_supervisor_is_killed(tmp_path: Path) -> None:
    supervisor = subprocess.Popen([sys.executable, "-c", SUPERVISOR], cwd=tmp_path)
    pids: list[int] = []
    try:
        eventually((tmp_path / "pids").exists, what="the start of the worker")
        pids = [int(pid) for pid in (tmp_path / "pids").read_text().split()]
        assert all(map(is_running, pids))
        supervisor.kill()
        eventually(lambda: not any(map(is_running, pids)), what="the end of the worker and of its child")
        assert not (tmp_path / "ended").exists()
    finally:
        supervisor.kill()
        supervisor.wait()
        for pid in filter(is_running, pids):
            os.kill(pid, signal.SIGKILL)


def test_a_worker_that_is_told_to_end_ends_its_work_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with WorkerProcess(lambda _: [sys.executable, "-c", WORKER], tmp_path / "log", python_bytes=1 << 40) as worker:
        eventually((tmp_path / "pids").exists, what="the start of the worker")
        worker.end()
        assert worker.wait() == 0
    assert (tmp_path / "ended").exists()


def test_lines_before_the_end_are_handed_on() -> None:
    assert list(lines_of_supervisor(["go on\n", "{}\n", f"{END}\n", "never\n"])) == ["go on\n", "{}\n"]
