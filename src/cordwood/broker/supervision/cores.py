"""The number of cores that this process may use: its affinity, and the limits of its control groups."""

import os
from collections.abc import Iterator
from pathlib import Path

_CGROUPS = Path("/sys/fs/cgroup")
_OWN_CGROUPS = Path("/proc/self/cgroup")


def usable_cores(cgroups: Path = _CGROUPS, own: Path = _OWN_CGROUPS) -> int:
    """The usable cores, at least 1. A limit of 2.5 cores counts as 2: a third worker would slow down the others."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, min([cores, *(int(limit) for limit in _limits(cgroups, own))]))


def _limits(cgroups: Path, own: Path) -> Iterator[float]:
    """The limits of the process's control group and of those above it, in cores."""
    for line in _text(own).splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers == "":
            top = cgroups
        elif "cpu" in controllers.split(","):
            top = cgroups / "cpu"
        else:
            continue
        inner = Path(path.lstrip("/"))
        # In a container the path is the host's, and the container's own group is mounted at the top.
        for group in {top, *(top / each for each in (inner, *inner.parents))}:
            quota, _, period = _text(group / "cpu.max").strip().partition(" ")
            if not period:
                quota, period = _text(group / "cpu.cfs_quota_us").strip(), _text(group / "cpu.cfs_period_us").strip()
            if quota.isdecimal() and period.isdecimal() and int(period):
                yield int(quota) / int(period)


def _text(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""
