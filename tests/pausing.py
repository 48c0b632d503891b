"""A process that is paused by SIGSTOP, and really stands still: the signal takes its time to reach every thread."""

import os
import signal
from pathlib import Path

from tests.deadline import eventually


def pause(pid: int, *, calls_too: bool = False) -> None:
    """Returns when no thread of the process runs; calls of the kernel may be under way, unless `calls_too`."""
    os.kill(pid, signal.SIGSTOP)
    still = "T" if calls_too else "TD"
    # Without a pause between two looks: what the process does next should be cut off in the middle, not after a while.
    eventually(lambda: set(_thread_states(pid)) <= set(still), what=f"process {pid} to stand still", every_s=0)


def resume(pid: int) -> None:
    os.kill(pid, signal.SIGCONT)


def _thread_states(pid: int) -> list[str]:
    """As in /proc: T is stopped, D inside a call that cannot be interrupted."""
    stats = [path.read_text() for path in Path(f"/proc/{pid}/task").glob("*/stat")]
    return [stat.rpartition(")")[2].split()[0] for stat in stats]
