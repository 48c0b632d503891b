"""Facts of the machine and of the software that figures belong to."""

from __future__ import annotations

import os
import platform
import re
import statistics
import subprocess
import sys
import time
from pathlib import Path

import confluent_kafka

from benchmarks.load import LoadUnavailable, binary

_REPOSITORY = Path(__file__).resolve().parent.parent


def facts(directory: Path, kafka_version: str | None) -> dict[str, object]:
    """What a reader needs to compare these figures with others; `directory` is where the data will be."""
    return {
        "cpu": _cpu_model(),
        "cores": cores(),
        "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1),
        "kernel": platform.release(),
        "architecture": platform.machine(),
        "filesystem": _filesystem(directory),
        "fdatasync_median_ms": round(_fdatasync_median_ms(directory), 3),
        "load_average_at_start": round(os.getloadavg()[0], 2),
        "python": f"{platform.python_version()} in {sys.base_prefix}",
        "java": _first_line("java", "-version"),
        "kafka": kafka_version,
        "librdkafka_of_load": _librdkafka_version(),
        "librdkafka_of_admin": confluent_kafka.libversion()[0],
        "commit": _first_line("git", "-C", str(_REPOSITORY), "rev-parse", "--short", "HEAD"),
    }


def cores() -> int:
    return len(os.sched_getaffinity(0))


def _cpu_model() -> str:
    text = Path("/proc/cpuinfo").read_text()
    found = re.search(r"^model name\s*: (.*)$", text, re.MULTILINE)
    return found.group(1) if found else platform.processor() or platform.machine()


def _filesystem(directory: Path) -> str:
    """Type and device of the mount that holds the directory: the longest mount point that is a prefix of it."""
    best = ("", "", "unknown")
    for line in Path("/proc/mounts").read_text().splitlines():
        device, point, kind = line.split()[:3]
        inside = directory.resolve().is_relative_to(point)
        if inside and len(point) > len(best[0]):
            best = (point, device, kind)
    return f"{best[2]} on {best[1]}"


def _fdatasync_median_ms(directory: Path) -> float:
    directory.mkdir(parents=True, exist_ok=True)
    probe = directory / "fdatasync.probe"
    took_ms = []
    file = os.open(probe, os.O_CREAT | os.O_WRONLY, 0o600)
    try:
        for _ in range(50):
            os.write(file, b"x" * 4096)
            begin = time.perf_counter()
            os.fdatasync(file)
            took_ms.append((time.perf_counter() - begin) * 1000)
    finally:
        os.close(file)
        probe.unlink()
    return statistics.median(took_ms)


def _first_line(*command: str) -> str:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=10, check=False)
    except OSError:
        return "none"
    return ((done.stdout + done.stderr).strip().splitlines() or ["none"])[0]


def _librdkafka_version() -> str:
    """Of the client that makes the load; benchmarks of Spark run without it."""
    try:
        program = binary()
    except LoadUnavailable:
        return "none"
    done = subprocess.run([program, "version"], capture_output=True, text=True, timeout=10, check=False)
    return done.stdout.strip()
