"""A producer at a steady rate, alone and while a reader back-fills data that is no longer in the page cache.

Two figures separate the disk from the CPU, which a reader at full speed takes, too: the same reader on data that is in
memory, and how late the producer's own process was.
"""

from __future__ import annotations

import threading
from contextlib import ExitStack
from typing import Any

from benchmarks import load
from benchmarks.bench import Bench, Sample
from benchmarks.figures import BACKFILL, Metric, ratio
from benchmarks.scenarios.throughput import PARTITIONS, filled_topics
from benchmarks.storage import evict, resident_share
from benchmarks.systems import System

RATE_PER_S = 1000
SIZE = 1024
_METRICS = (
    Metric("p99 while back-filling / p99 alone", "x", BACKFILL),
    Metric("p99 alone", "us"),
    Metric("p99 while the same is read from memory", "us"),
    Metric("p99 while back-filling", "us"),
    Metric("of it, p99 of the client's own delay", "us"),
    Metric("cold data read meanwhile", "MB/s"),
)


def backfill(bench: Bench) -> None:
    """1,000 messages of 1 KiB a second, acks=all; latency counts from when a message was due."""
    systems = bench.pair()
    with ExitStack() as stack:
        bench.say(f"writing {bench.plan.cold_bytes / 1e9:.1f} GB that will be cold")
        settings = {"segment.bytes": str(128 * 2**20)}  # most of the data is in closed segments
        cold, able = filled_topics(bench, stack, systems, SIZE, bench.plan.cold_bytes // SIZE, settings)

        def measure(system: System) -> Sample:
            with bench.topic(system) as topic:
                alone = _steady(bench, system, topic, beside_another=False)
                with _Reader(bench, system, cold[system.name], cold=True) as reader:
                    beside = _steady(bench, system, topic, beside_another=True)
                with _Reader(bench, system, cold[system.name], cold=False):
                    control = _steady(bench, system, topic, beside_another=True)
            alone_us, control_us, beside_us = (run.latency_us("p99") for run in (alone, control, beside))
            factor = ratio(beside_us, alone_us)
            assert factor is not None
            values = (factor, alone_us, control_us, beside_us, beside.latency_us("sender_late_p99"), reader.mb_per_s)
            return Sample(values, "", beside.command)

        bench.alternate(
            f"{RATE_PER_S:,}/s of 1 KiB, acks=all, page cache",
            _METRICS,
            able,
            measure,
            rounds=bench.plan.few_rounds,
        )


def _steady(bench: Bench, system: System, topic: str, *, beside_another: bool) -> load.LoadResult:
    flags: dict[str, Any] = {"rate": RATE_PER_S, "size": SIZE, "seconds": bench.plan.steady_s, "acks": "all"}
    return bench.load(system, "steady", topic, beside_another=beside_another, **flags).client


class _Reader:
    """Reads the topic from the beginning, again and again; `cold`: drops it from the page cache before each pass."""

    def __init__(self, bench: Bench, system: System, topic: str, *, cold: bool) -> None:
        self._bench = bench
        self._system = system
        self._topic = topic
        self._cold = cold
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._read, name="reader")
        self._read_bytes = 0
        self._read_s = 0.0
        self._failure: Exception | None = None

    @property
    def mb_per_s(self) -> float:
        return self._read_bytes / self._read_s / 1e6 if self._read_s else 0.0

    def __enter__(self) -> _Reader:
        if self._cold:
            evict(self._system.data, self._topic)
            left = resident_share(self._system.data, self._topic)
            if left > 0.05:
                self._bench.note(f"{self._system.name}: {left:.0%} of the cold data stayed in the page cache")
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()
        if self._failure is not None:
            raise self._failure

    def _read(self) -> None:
        try:
            while not self._stop.is_set():
                self._one_pass()
                if self._cold:
                    evict(self._system.data, self._topic)
        except Exception as error:
            self._failure = error

    def _one_pass(self) -> None:
        run = load.start(
            "consume",
            self._system.bootstrap,
            self._topic,
            properties={"queued.max.messages.kbytes": "65536"},
            partitions=PARTITIONS,
            timeout=int(self._bench.plan.timeout_s),
        )
        while run.running and not self._stop.wait(0.05):
            pass
        done = run.result_so_far(10) if run.running else run.result(10)
        if done is not None:
            self._read_bytes += done.size_bytes
            self._read_s += done.seconds
