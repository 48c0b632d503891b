"""A process that runs Spark over a topic, timed from outside: when each batch was done, and the CPU by then.

A batch is done when Spark writes its number into the checkpoint, which a plain query and a pipeline both have: what
they say about themselves is not asked. CPU is that of the process and all its descendants, without the broker's.
"""

from __future__ import annotations

import os
import subprocess
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.processes import cpu_seconds

_LOOK_S = 0.25
"""Each look reads the CPU of all processes of the machine, which costs milliseconds itself."""


class RunFailed(Exception):
    """A process that did not end well; the message has the end of its output."""


@dataclass(frozen=True)
class Timeline:
    """Times are seconds since the process was started."""

    batches_s: Sequence[float]
    """When each batch was done."""
    cpu: Sequence[tuple[float, float]]
    """(time, CPU seconds by then)"""
    ended_s: float

    def warm_s(self, cold: int) -> list[float]:
        """How long each batch took, without the first `cold` ones."""
        pairs = zip(self.batches_s, self.batches_s[1:], strict=False)
        return [done - begun for begun, done in pairs][max(cold, 1) - 1 :]

    def warm_cpu_s(self, cold: int) -> float:
        """CPU of all batches but the first `cold` ones."""
        return self._cpu_by(self.batches_s[-1]) - self._cpu_by(self.batches_s[cold - 1])

    def _cpu_by(self, moment_s: float) -> float:
        before = [(at, used) for at, used in self.cpu if at <= moment_s]
        after = [(at, used) for at, used in self.cpu if at > moment_s]
        if not before or not after:
            return (before or after)[-1][1]
        (at, used), (next_at, next_used) = before[-1], after[0]
        return used + (next_used - used) * (moment_s - at) / (next_at - at)


def run_timed(command: Sequence[str], checkpoints: Path, log: Path, environment: Mapping[str, str]) -> Timeline:
    """`checkpoints`: the directory below which the one checkpoint of the run will be."""
    began, began_at = time.monotonic(), time.time()
    with log.open("ab") as output:
        process = subprocess.Popen(
            list(command),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env={**os.environ, **environment},
            start_new_session=True,
        )
    cpu: list[tuple[float, float]] = []
    ended = threading.Event()

    def look() -> None:
        while not ended.wait(_LOOK_S):
            cpu.append((time.monotonic() - began, cpu_seconds(process.pid)))

    looking = threading.Thread(target=look)
    looking.start()
    try:
        code = process.wait(1200)
    except BaseException:
        os.killpg(process.pid, 9)
        raise
    finally:
        ended.set()
        looking.join()
    took_s = time.monotonic() - began
    done = [at for at in _batches_done(checkpoints) if at >= began_at]
    if code != 0 or not done:
        raise RunFailed(f"{command[0]} … ended with {code}:\n{log.read_text(errors='replace')[-3000:]}")
    # An ended process has no CPU any more, so the last looks may be lower than those before.
    rising = [(at, max(used for _, used in cpu[: index + 1])) for index, (at, used) in enumerate(cpu)]
    return Timeline([at - began_at for at in done], rising, took_s)


def _batches_done(checkpoints: Path) -> list[float]:
    found = [path for path in checkpoints.glob("**/commits/*") if path.name.isdecimal()]
    assert len({path.parent for path in found}) <= 1, "one run, one checkpoint"
    return [path.stat().st_mtime for path in sorted(found, key=lambda path: int(path.name))]
