"""The lock of a running edition, which the system takes back from dead processes, and in it the holder's process id.

One process at a time runs an edition. The lock is the kernel's (flock), so a killed holder holds nothing. Its children
inherit the lock and hold it while they live. The process id is for people and for `stop`; the process's start time
tells it from a later process with the same number.
"""

import fcntl
import json
import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from cordwood.pipelines.definition.errors import AlreadyRunning

_PROBING_S: Final = 1.0
"""A probe briefly takes the lock: `take` waits this long before it reports a holder."""
_PAUSE_S: Final = 0.02


@dataclass(frozen=True)
class Holder:
    """The process that runs an edition."""

    pid: int | None
    """The process that took the lock. None for an instant while it starts, and if it is gone while a child still holds
    the lock: another process may have its number by now."""
    since_ms: int | None


class RunLock:
    """A lock that is held from `take` to `release`, or to the end of this process and of those that inherited
    `descriptor`."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.descriptor = -1

    def take(self, what: str, now_ms: int) -> None:
        """Takes the lock. Raises AlreadyRunning, naming the holder."""
        descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        deadline = time.monotonic() + _PROBING_S
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > deadline:
                    os.close(descriptor)
                    raise _already_running(what, holder(self.path)) from None
                time.sleep(_PAUSE_S)
        pid = os.getpid()
        content = json.dumps({"pid": pid, "process_start": process_start(pid), "since_ms": now_ms})
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, content.encode(), 0)
        self.descriptor = descriptor

    def release(self) -> None:
        if self.descriptor >= 0:
            os.ftruncate(self.descriptor, 0)
            os.close(self.descriptor)
            self.descriptor = -1


def check_nobody_holds(path: Path, what: str) -> None:
    """Raises AlreadyRunning, naming the holder, as `take` would. Changes nothing."""
    found = holder(path)
    if found is not None:
        raise _already_running(what, found)


def _already_running(what: str, found: Holder | None) -> AlreadyRunning:
    by = f" by process {found.pid}" if found is not None and found.pid is not None else ""
    return AlreadyRunning(f"{what} is being run{by}", "`cordwood pipeline stop` ends it")


def holder(path: Path) -> Holder | None:
    """The process that holds the lock, or None."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        return None
    except BlockingIOError:
        try:
            said = json.loads(os.pread(descriptor, 4096, 0))
            is_there = process_start(said["pid"]) == said["process_start"]
            return Holder(said["pid"] if is_there else None, said["since_ms"])
        except (ValueError, KeyError, TypeError):
            return Holder(None, None)
    finally:
        os.close(descriptor)


def process_start(pid: int) -> int | None:
    """The start time of a process, in the system's ticks; None if it is gone or the system does not tell."""
    try:
        with open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as file:
            return int(file.read().rpartition(")")[2].split()[19])
    except (OSError, ValueError, IndexError):
        return None
