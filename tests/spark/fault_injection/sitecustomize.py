"""Kills processes at named steps of the sink. Python imports this file at its start if its directory is on the path.

SINK_FAULTS names a directory. A file in it with the name of a step lists the victims of that step: process ids,
negative ones for process groups, or `self`; `power:` and a path cut the power of the disk that is mounted there, before
any kill. The first process to reach the step removes the file, so that the fault happens once. Each word `later` lets
the step be reached once more before.
"""

import fcntl
import os
import signal
import struct
from enum import Enum
from pathlib import Path

from cordwood.spark.sink.steps import watch

FS_IOC_SHUTDOWN = 0x8004587D
NO_LOG_FLUSH = 2
"""As in tests/crash/mounts.py, which processes of Spark cannot import."""


def strike(step: Enum) -> None:
    order = Path(os.environ["SINK_FAULTS"]) / step.value
    taken = order.with_name(f"{step.value}.taken.{os.getpid()}")
    try:
        order.rename(taken)
    except FileNotFoundError:
        return
    victims = taken.read_text().split()
    if "later" in victims:
        victims.remove("later")
        taken.write_text(" ".join(victims))
        taken.rename(order)
        return
    for victim in sorted(victims, key=lambda text: (text == "self") - text.startswith("power:")):
        if victim.startswith("power:"):
            _cut_power(victim.removeprefix("power:"))
        elif victim == "self":
            os.kill(os.getpid(), signal.SIGKILL)
        elif int(victim) < 0:
            os.killpg(-int(victim), signal.SIGKILL)
        else:
            os.kill(int(victim), signal.SIGKILL)


def _cut_power(mount: str) -> None:
    root = os.open(mount, os.O_RDONLY)
    fcntl.ioctl(root, FS_IOC_SHUTDOWN, struct.pack("I", NO_LOG_FLUSH))
    os.close(root)


watch(strike)
