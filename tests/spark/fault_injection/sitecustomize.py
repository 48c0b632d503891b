"""Kills processes at named steps of the sink. Python imports this file at its start where its directory is on the path.

SINK_FAULTS names a directory. A file in it called like a step holds who is to die when the step is reached: process
ids, negative ones for process groups, or `self`. The first process to reach the step takes the file away, so that it
happens once.
"""

import os
import signal
from pathlib import Path

from cordwood.spark.sink.steps import Step, watch


def strike(step: Step) -> None:
    order = Path(os.environ["SINK_FAULTS"]) / step.value
    taken = order.with_name(f"{step.value}.taken.{os.getpid()}")
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


watch(strike)
