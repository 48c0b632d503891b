"""Runs load.c, the librdkafka client of all benchmarks: compiles it once, starts it, reads its JSON line."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from benchmarks.maven import PEERS

SOURCES = sorted(Path(__file__).resolve().parent.glob("load*.[ch]"))


class LoadUnavailable(Exception):
    """The client cannot be built here; the message says which package to install."""


class LoadFailed(Exception):
    """A client ended with an error or did not end; the message holds what it said."""


@dataclass(frozen=True)
class LoadResult:
    """One client's run, as it measured itself."""

    command: str
    messages: int
    size_bytes: int
    seconds: float
    cpu_s: float
    busiest_thread_s: float
    fields: Mapping[str, Any]

    @property
    def messages_per_s(self) -> float:
        return self.messages / self.seconds

    @property
    def mb_per_s(self) -> float:
        return self.size_bytes / self.seconds / 1e6

    @property
    def began_at_s(self) -> float:
        """On the clock of time.monotonic(), as `ended_at_s`."""
        return float(self.fields["began_at_s"])

    @property
    def ended_at_s(self) -> float:
        return float(self.fields["ended_at_s"])

    def latency_us(self, name: str) -> float:
        """`p50`, `p90`, `p99`, `p999`, `mean` or `max`."""
        return float(self.fields[f"{name}_us"])


@cache
def binary() -> Path:
    """The compiled client; compiled again only when a source is newer."""
    built = PEERS / "load"
    if built.exists() and built.stat().st_mtime >= max(source.stat().st_mtime for source in SOURCES):
        return built
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if compiler is None:
        raise LoadUnavailable("no C compiler found: install one (Debian: gcc)")
    PEERS.mkdir(parents=True, exist_ok=True)
    fresh = PEERS / f"load.{os.getpid()}"  # tests and a benchmark may compile at the same time
    sources = [str(source) for source in SOURCES if source.suffix == ".c"]
    command = [compiler, "-O2", "-std=c11", "-Wno-deprecated-declarations", *sources, "-o", str(fresh)]
    done = subprocess.run([*command, *_librdkafka_flags(), "-lpthread"], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        if "librdkafka/rdkafka.h" in done.stderr or "-lrdkafka" in done.stderr:
            raise LoadUnavailable("librdkafka's header is missing: install it (Debian: librdkafka-dev)")
        raise LoadUnavailable(f"load.c does not compile:\n{done.stderr}")
    fresh.rename(built)
    return built


def _librdkafka_flags() -> list[str]:
    if shutil.which("pkg-config"):
        asked = subprocess.run(
            ["pkg-config", "--cflags", "--libs", "rdkafka"], capture_output=True, text=True, check=False
        )
        if asked.returncode == 0:
            return asked.stdout.split()
    return ["-lrdkafka"]


def start(
    mode: str, bootstrap: str, topic: str, *, properties: Mapping[str, str] | None = None, **flags: object
) -> Run:
    """Start a client. Flags are load.c's options (`seconds=2`, `first_partition=3`), properties are librdkafka's."""
    command = [str(binary()), mode, "--bootstrap", bootstrap, "--topic", topic]
    for name, value in flags.items():
        command += [f"--{name.replace('_', '-')}", str(value)]
    for name, value in (properties or {}).items():
        command += ["--set", f"{name}={value}"]
    return Run(command)


class Run:
    """A client that runs; `result()` waits for its end."""

    def __init__(self, command: Sequence[str], directory: Path | None = None) -> None:
        self.command = " ".join(command)
        self._process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=directory
        )

    @property
    def running(self) -> bool:
        return self._process.poll() is None

    def abandon(self) -> None:
        """End the client: its figures are not wanted."""
        self._process.kill()
        self._process.communicate()

    def result_so_far(self, timeout_s: float) -> LoadResult | None:
        """Ask a consumer to stop here and tell what it read; None if it had not begun."""
        self._process.terminate()
        try:
            return self.result(timeout_s)
        except LoadFailed:
            if self._process.returncode == -signal.SIGTERM:
                return None
            raise

    def result(self, timeout_s: float) -> LoadResult:
        try:
            output, errors = self._process.communicate(timeout=timeout_s)
        except subprocess.TimeoutExpired:
            self.abandon()
            raise LoadFailed(f"no result within {timeout_s:.0f} s: {self.command}") from None
        if self._process.returncode != 0:
            raise LoadFailed(f"{errors.strip() or 'no message'} ({self.command})")
        return read_result(self.command, output)


def read_result(command: str, output: str) -> LoadResult:
    fields = json.loads(output)
    return LoadResult(
        command,
        int(fields["messages"]),
        int(fields["bytes"]),
        float(fields["seconds"]),
        float(fields["cpu_s"]),
        float(fields["busiest_thread_s"]),
        fields,
    )
