"""The lock of a running edition, as real processes see it."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from cordwood.pipelines.definition.errors import AlreadyRunning
from cordwood.pipelines.editions.run_lock import RunLock, holder, process_start

HOLD = """
import sys, time
from pathlib import Path
from cordwood.pipelines.editions.run_lock import RunLock
RunLock(Path(sys.argv[1])).take("it", 5)
print("held", flush=True)
time.sleep(600)
"""

HOLD_WITH_A_CHILD = """
import subprocess, sys, time
from pathlib import Path
from cordwood.pipelines.editions.run_lock import RunLock
lock = RunLock(Path(sys.argv[1]))
lock.take("it", 5)
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], pass_fds=[lock.descriptor])
print(child.pid, flush=True)
time.sleep(600)
"""


def start(program: str, path: Path) -> tuple["subprocess.Popen[str]", str]:
    process = subprocess.Popen([sys.executable, "-c", program, str(path)], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    return process, process.stdout.readline().strip()


def end(process: "subprocess.Popen[str]") -> None:
    process.kill()
    process.wait()
    assert process.stdout is not None
    process.stdout.close()


def test_one_process_at_a_time_and_the_others_are_told_which(tmp_path: Path) -> None:
    path = tmp_path / "running"
    assert holder(path) is None
    process, said = start(HOLD, path)
    try:
        assert said == "held"
        found = holder(path)
        assert found is not None
        assert (found.pid, found.since_ms) == (process.pid, 5)
        with pytest.raises(AlreadyRunning, match=f"v1 is being run by process {process.pid}"):
            RunLock(path).take("v1", 6)
    finally:
        end(process)


def test_a_killed_holder_holds_nothing(tmp_path: Path) -> None:
    path = tmp_path / "running"
    process, _ = start(HOLD, path)
    end(process)
    assert holder(path) is None
    lock = RunLock(path)
    lock.take("v1", 7)
    found = holder(path)
    assert found is not None
    assert found.pid == os.getpid()
    lock.release()
    assert holder(path) is None


def test_the_lock_is_held_as_long_as_a_child_of_the_dead_holder_lives(tmp_path: Path) -> None:
    path = tmp_path / "running"
    process, child = start(HOLD_WITH_A_CHILD, path)
    end(process)
    try:
        found = holder(path)
        assert found is not None
        assert found.pid is None, "its number may be another's by now"
        with pytest.raises(AlreadyRunning, match=r"v1 is being run$"):
            RunLock(path).take("v1", 6)
    finally:
        os.kill(int(child), signal.SIGKILL)


def test_a_process_is_known_by_when_it_started() -> None:
    assert process_start(os.getpid()) == process_start(os.getpid()) is not None
    assert process_start(2**22 + 1) is None
