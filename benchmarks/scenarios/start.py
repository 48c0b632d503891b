"""From the start of the process to the first acknowledged message, on a directory that has the topic already."""

from __future__ import annotations

import time

from benchmarks import load
from benchmarks.bench import Bench, Sample, dispose
from benchmarks.figures import START, Metric
from benchmarks.systems import System, create_topics

TOPIC = "first"
_METRICS = (Metric("first ack after", "ms", START), Metric("listening after", "ms"))


def start(bench: Bench) -> None:
    """A client that retries every millisecond waits before the broker starts. Kafka's format step does not count."""
    systems = [bench.new_system(name) for name in bench.names]
    try:
        able = bench.prepared(systems, _first_start)
        bench.alternate("restart after a clean stop", _METRICS, able, lambda system: time_first_ack(bench, system))
    finally:
        for system in systems:
            dispose(system)


def _first_start(system: System) -> None:
    """Makes the topic, and fills the page cache and Python's bytecode cache."""
    system.start()
    create_topics(system, [TOPIC], 1, system.topic_settings("os"))
    system.stop()


def time_first_ack(bench: Bench, system: System, *, topic: str = TOPIC) -> Sample:
    """Start a stopped broker, wait for the first acknowledgement, and stop it again."""
    patience_s = max(60, bench.plan.timeout_s)  # a JVM on a busy machine with many partitions takes its time
    client = load.start("first-ack", system.bootstrap, topic, timeout=int(patience_s))
    time.sleep(0.1)  # the client is at its port by now
    begin = time.monotonic()  # the clock that the client reads, too
    try:
        system.start(wait=False)
        result = client.result(patience_s + 10)
    finally:
        system.stop()
    waits_ms = [(float(result.fields[name]) - begin) * 1000 for name in ("acked_at_s", "listening_at_s")]
    return Sample(waits_ms, "", result.command)
