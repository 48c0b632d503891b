"""CPU and memory of a process and its children, as the kernel counts them in /proc.

Promises: a process's dead children count too, once it has waited for them; nothing here signals a process.
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from pathlib import Path

_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
_PPID, _UTIME, _STIME, _CUTIME, _CSTIME = 1, 11, 12, 13, 14  # places after the command's name in /proc/<pid>/stat


def _stat(pid: int) -> list[str]:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()


def tree(pid: int) -> list[int]:
    """The process and all its descendants that live now."""
    children: dict[int, list[int]] = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                children.setdefault(int(_stat(int(entry))[_PPID]), []).append(int(entry))
            except OSError:
                continue  # it ended while we looked
    found = [pid]
    for member in found:
        found.extend(children.get(member, []))
    return found


def cpu_seconds(pid: int) -> float:
    """User and system time of the tree so far."""
    ticks = 0
    for member in tree(pid):
        try:
            stat = _stat(member)
        except OSError:
            continue
        ticks += sum(int(stat[place]) for place in (_UTIME, _STIME, _CUTIME, _CSTIME))
    return ticks / _TICKS_PER_S


def _status_bytes(pid: int, key: str) -> int:
    total = 0
    for member in tree(pid):
        try:
            status = Path(f"/proc/{member}/status").read_text()
        except OSError:
            continue
        for line in status.splitlines():
            if line.startswith(key + ":"):
                total += int(line.split()[1]) * 1024
    return total


def rss_bytes(pid: int) -> int:
    """Resident memory of the tree now (pages that processes share count once for each)."""
    return _status_bytes(pid, "VmRSS")


def peak_rss_bytes(pid: int) -> int:
    """The most that was ever resident, per process of the tree."""
    return _status_bytes(pid, "VmHWM")


def thread_seconds(pid: int) -> dict[int, float]:
    """CPU time of each thread of the tree."""
    found: dict[int, float] = {}
    for member in tree(pid):
        try:
            threads = os.listdir(f"/proc/{member}/task")
        except OSError:
            continue
        for thread in threads:
            try:
                found[int(thread)] = int(Path(f"/proc/{member}/task/{thread}/schedstat").read_text().split()[0]) / 1e9
            except (OSError, IndexError):
                continue
    return found


def machine_busy_seconds() -> float:
    """CPU time of everything since the machine started, with what a hypervisor took away (steal)."""
    user, nice, system, _idle, _iowait, interrupt, soft_interrupt, steal = (
        int(ticks) for ticks in Path("/proc/stat").read_text().split(maxsplit=9)[1:9]
    )
    return (user + nice + system + interrupt + soft_interrupt + steal) / _TICKS_PER_S


@dataclass(frozen=True)
class Usage:
    """What a broker used between two moments."""

    cpu_s: float
    busiest_thread_s: float
    machine_busy_s: float
    wall_s: float

    @property
    def machine_share(self) -> float:
        """How busy all cores were, with everything that ran on them, between 0 and 1."""
        return self.machine_busy_s / (self.wall_s * (os.cpu_count() or 1))


class Meter:
    """Reads the CPU of a broker, or of all processes of a cluster, now and again at `usage()`."""

    def __init__(self, *pids: int) -> None:
        self._pids = pids
        self._threads = self._thread_seconds()
        self._cpu_s = sum(map(cpu_seconds, pids))
        self._machine_s = machine_busy_seconds()
        self._began = time.monotonic()

    def usage(self) -> Usage:
        wall_s = time.monotonic() - self._began
        machine_s = machine_busy_seconds() - self._machine_s
        cpu_s = sum(map(cpu_seconds, self._pids)) - self._cpu_s
        threads = self._thread_seconds()
        busiest = max((used - self._threads.get(thread, 0.0) for thread, used in threads.items()), default=0.0)
        return Usage(cpu_s, busiest, machine_s, wall_s)

    def _thread_seconds(self) -> dict[int, float]:
        return {thread: used for pid in self._pids for thread, used in thread_seconds(pid).items()}
