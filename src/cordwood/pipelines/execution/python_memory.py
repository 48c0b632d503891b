"""A bound on the memory of the Python processes below a worker: the driver's Python, planners, Python workers of Spark.

A function that fills memory would take the machine, and every other pipeline with it. So the supervisor, which has no
Spark and runs no function, looks several times a second at what these processes take together. Past the bound it kills
the largest one, and says so to the worker before: the batch that fails by this is told why it failed, and its rows are
not searched for poison. Java is not counted: its memory has a bound of its own, `spark.driver.memory`.

An address space limit, which `spark.executor.pyspark.memory` sets, is no such bound: Arrow and numba reserve far more
than they touch, and it holds for each process, of which there are two for each core.
"""

import json
import os
import re
import time
from collections import deque
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from threading import Condition
from typing import Final, NamedTuple

from cordwood.model.quantities import size_in_words
from cordwood.pipelines.definition.errors import OverMemory

_PROCESSES: Final = Path("/proc")
_PAGE_BYTES: Final = os.sysconf("SC_PAGE_SIZE")
_SESSION, _RESIDENT = 3, 21
"""Places behind the command's name in /proc/<pid>/stat."""
_CRASHED: Final = re.compile(r"Python worker exited unexpectedly|Python worker.{0,80}crash", re.DOTALL)
"""In Spark's failure of a task whose Python worker is gone."""
_NOTE_COMES_WITHIN_S: Final = 3.0
_NOTE_HOLDS_S: Final = 60.0


@dataclass(frozen=True)
class PythonKilled:
    """Tells a worker that the supervisor is about to kill one of its Python processes."""

    why: str

    def to_line(self) -> str:
        return json.dumps({"order": type(self).__name__, **asdict(self)})

    @classmethod
    def from_line(cls, line: str) -> "PythonKilled":
        return cls(json.loads(line)["why"])


class Largest(NamedTuple):
    """The largest of some processes that take too much together."""

    pid: int
    taken_bytes: int
    together_bytes: int

    def in_words(self, what: str, limit_bytes: int) -> str:
        taken, together, limit = map(size_in_words, (self.taken_bytes, self.together_bytes, limit_bytes))
        return (
            f"{what} was killed: it had taken {taken} of memory, and all Python processes of this Spark {together}, "
            f"where --python-memory allows {limit}"
        )


class PythonProcesses:
    """The processes other than Java of a session, which its leader's descendants share. Elsewhere than on Linux none is
    found."""

    def __init__(self, leader: int) -> None:
        self._leader = leader
        self._others: set[int] = set()
        """Processes of other sessions."""

    def largest_beyond(self, limit_bytes: int) -> Largest | None:
        """The largest process if all of them take more than this together."""
        resident = dict(self._resident())
        if sum(resident.values()) <= limit_bytes:
            return None
        # Workers share pages with the daemon that they are forked from.
        exact = {pid: _proportional_bytes(pid) for pid in resident}
        together = sum(exact.values())
        if together <= limit_bytes:
            return None
        pid = max(exact, key=lambda each: exact[each])
        return Largest(pid, exact[pid], together)

    def has(self, pid: int) -> bool:
        """True while the process has memory: one that was killed gives it back after a moment."""
        found = _stat(pid)
        return found is not None and int(found[1][_RESIDENT]) > 0

    def _resident(self) -> Iterator[tuple[int, int]]:
        """The resident bytes of each process. Shared pages count for each process that has them."""
        try:
            there = {int(name) for name in os.listdir(_PROCESSES) if name.isdecimal()}
        except OSError:
            return
        self._others &= there
        for pid in there - self._others:
            found = _stat(pid)
            if found is None:
                continue
            command, facts = found
            if int(facts[_SESSION]) != self._leader:
                self._others.add(pid)
            elif command != "java":
                yield pid, int(facts[_RESIDENT]) * _PAGE_BYTES


def default_limit_bytes(cgroups: Path = Path("/sys/fs/cgroup")) -> int:
    """Half of the memory of the machine, or of the container if that has less."""
    found = [os.sysconf("SC_PHYS_PAGES") * _PAGE_BYTES]
    for path in (cgroups / "memory.max", cgroups / "memory" / "memory.limit_in_bytes"):
        text = _text(path).strip()
        if text.isdecimal():
            found.append(int(text))
    return min(found) // 2


class KilledPython:
    """The Python processes of this worker that its supervisor has killed."""

    def __init__(self) -> None:
        self._notes: deque[tuple[float, str]] = deque()
        self._changed = Condition()

    def note(self, killed: PythonKilled) -> None:
        with self._changed:
            self._notes.append((time.monotonic(), killed.why))
            self._changed.notify_all()

    def check(self, failure: BaseException) -> None:
        """Raises OverMemory if the failure is the end of a Python worker that was killed for its memory. Each kill
        explains one failure: all else that crashes is the rows' or the function's fault."""
        if isinstance(failure, OverMemory) or not _CRASHED.search(str(failure)):
            return
        # The supervisor writes the note before it kills, but another thread of this process reads it.
        with self._changed:
            self._changed.wait_for(self._has_note, _NOTE_COMES_WITHIN_S)
            if self._has_note():
                raise OverMemory(self._notes.popleft()[1]) from None

    def _has_note(self) -> bool:
        while self._notes and time.monotonic() - self._notes[0][0] > _NOTE_HOLDS_S:
            self._notes.popleft()
        return bool(self._notes)


def _stat(pid: int) -> tuple[str, list[str]] | None:
    """The command and the facts behind it; None for a process that is gone."""
    before, _, facts = _text(_PROCESSES / str(pid) / "stat").rpartition(")")
    return (before.partition("(")[2], facts.split()) if facts else None


def _proportional_bytes(pid: int) -> int:
    for line in _text(_PROCESSES / str(pid) / "smaps_rollup").splitlines():
        if line.startswith("Pss:"):
            return int(line.split()[1]) * 1024
    return 0


def _text(path: Path) -> str:
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""
