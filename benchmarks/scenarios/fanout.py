"""Many readers of the same topic at once, each from the beginning to the end."""

from __future__ import annotations

from contextlib import ExitStack

from benchmarks import load
from benchmarks.bench import Bench, Sample
from benchmarks.figures import CPU, THROUGHPUT, Metric, limit_of, per_gigabyte
from benchmarks.processes import Meter
from benchmarks.scenarios.throughput import PARTITIONS, filled_topics
from benchmarks.systems import System

READERS = (1, 5, 20)
SIZE = 1024
_METRICS = (Metric("MB/s, all readers", "MB/s", THROUGHPUT), Metric("broker CPU per GB consumed", "s", CPU))


def fanout(bench: Bench) -> None:
    systems = bench.pair()
    backlog = bench.plan.fanout_bytes // SIZE
    with ExitStack() as stack:
        topics, able = filled_topics(bench, stack, systems, SIZE, backlog)
        for readers in READERS:

            def measure(system: System, readers: int = readers) -> Sample:
                # The same amount for all readers together, so that every case takes about as long.
                return _read_together(bench, system, topics[system.name], readers, backlog // readers)

            words = "1 reader" if readers == 1 else f"{readers} readers"
            bench.alternate(words, _METRICS, able, measure, rounds=min(3, bench.plan.rounds))


def _read_together(bench: Bench, system: System, topic: str, readers: int, messages: int) -> Sample:
    meter = Meter(system.pid)
    # 20 clients that buffer without bound would fill the memory of a small machine.
    properties = {"queued.max.messages.kbytes": "65536"}
    runs = [
        load.start(
            "consume",
            system.bootstrap,
            topic,
            properties=properties,
            partitions=PARTITIONS,
            messages=messages,
            timeout=int(bench.plan.timeout_s),
        )
        for _ in range(readers)
    ]
    try:
        results = [run.result(bench.plan.timeout_s) for run in runs]
    finally:
        for run in runs:
            if run.running:
                run.abandon()
    used = meter.usage()
    bench.count_neighbours(used, sum(result.cpu_s for result in results))
    seconds = max(result.ended_at_s for result in results) - min(result.began_at_s for result in results)
    total = sum(result.size_bytes for result in results)
    limit = limit_of(
        client=max(result.busiest_thread_s for result in results) / seconds,
        broker=used.busiest_thread_s / seconds,
        machine=used.machine_share,
    )
    command = f"{readers} x {results[0].command}"
    return Sample((total / seconds / 1e6, per_gigabyte(used.cpu_s, total)), limit, command)
