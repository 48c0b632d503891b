"""Named steps of the sink at which a test can have processes killed, so that "between any two steps" is tried step by
step.

Out of reach unless the environment says otherwise: CORDWOOD_SINK_FAULTS names a directory when the process starts. A
file in it called like a step holds who is to die when the step is reached: process ids, negative ones for process
groups, or `self`. The first to reach the step takes the file away, so that it happens once.
"""

import os
import signal
from pathlib import Path

_DIRECTORY = os.environ.get("CORDWOOD_SINK_FAULTS", "")

STEPS = (
    "task-started",
    "task-joined",
    "task-produced",
    "task-flushed",
    "task-completed",
    "driver-deciding",
    "driver-decided",
    "driver-aborting",
    "driver-aborted",
)
"""In the order of a write: a task has its rows, its slot, its first answer, all answers, its report; then the
driver."""


def reached(step: str) -> None:
    """Called at every step; free of cost where no faults are asked for."""
    if _DIRECTORY:
        _strike(step)


def _strike(step: str) -> None:
    assert step in STEPS, step
    order = Path(_DIRECTORY) / step
    taken = order.with_name(f"{step}.taken.{os.getpid()}")
    try:
        order.rename(taken)
    except FileNotFoundError:
        return
    victims = taken.read_text().split()
    for victim in sorted(victims, key=lambda text: text == "self"):
        if victim == "self":
            os.kill(os.getpid(), signal.SIGKILL)
        elif int(victim) < 0:
            os.killpg(-int(victim), signal.SIGKILL)
        else:
            os.kill(int(victim), signal.SIGKILL)
