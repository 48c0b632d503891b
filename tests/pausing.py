"""A process that is paused by SIGSTOP, and really stands still: the signal takes its time to reach every thread."""

import os
import signal
import time
from pathlib import Path

_WITHIN_S = 30.0


def pause(pid: int, *, calls_too: bool = False) -> None:
    """Returns when no thread of the process runs; calls of the kernel may be under way, unless `calls_too`."""
    os.kill(pid, signal.SIGSTOP)
    still = "T" if calls_too else "TD"
    deadline = time.monotonic() + _WITHIN_S
    # Without a pause between two looks: what the process does next should be cut off in the middle, not after a while.
    while any(state not in still for state in _thread_states(pid)):
        assert time.monotonic() < deadline, f"process {pid} does not stand still"


def resume(pid: int) -> None:
    os.kill(pid, signal.SIGCONT)


def _thread_states(pid: int) -> list[str]:
    """As in /proc: T is stopped, D inside a call that cannot be interrupted."""
    stats = [path.read_text() for path in Path(f"/proc/{pid}/task").glob("*/stat")]
    return [stat.rpartition(")")[2].split()[0] for stat in stats]
