"""Resident memory: idle, after load, and against the smallest Kafka heap that holds the throughput."""

from __future__ import annotations

from typing import Any

from benchmarks import processes
from benchmarks.bench import Bench, Sample
from benchmarks.figures import CORDWOOD, KAFKA, MEMORY, Figure, Metric, median
from benchmarks.systems import System

HEAPS = ("64m", "96m", "128m", "192m", "256m", "384m", "512m")
QUICK_HEAPS = ("96m", "192m")
HOLDS = 0.9
"""A heap holds the throughput if it reaches this share of the default heap's."""

_PARTITIONS = 4
_METRICS = (Metric("RSS idle", "MB"), Metric("RSS at most, under load", "MB", MEMORY), Metric("MB/s produced", "MB/s"))


def memory(bench: Bench) -> None:
    def measure(name: str) -> Sample:
        return measure_with_heap(bench, name, None)

    bench.alternate_names("Kafka's default heap of 1 GiB", _METRICS, bench.names, measure, rounds=bench.plan.few_rounds)
    if KAFKA in bench.names:
        _against_smallest_heap(bench)


def measure_with_heap(bench: Bench, name: str, heap: str | None) -> Sample:
    """A fresh broker: its memory after one message, and the most it took while 1 KiB messages came and were read."""
    with bench.fresh(name, heap=heap) as system:
        system.start()
        with bench.topic(system, partitions=_PARTITIONS) as topic:
            bench.load(system, "produce", topic, messages=1, partitions=_PARTITIONS)
            idle = processes.rss_bytes(system.pid)
            rate, command = _produce_and_consume(bench, system, topic)
            most = processes.peak_rss_bytes(system.pid)
    return Sample((idle / 1e6, most / 1e6, rate), "", command)


def _produce_and_consume(bench: Bench, system: System, topic: str) -> tuple[float, str]:
    """The best of some runs: in the first the JVM still compiles."""
    rates = []
    flags: dict[str, Any] = {"size": 1024, "partitions": _PARTITIONS, "seconds": bench.plan.seconds}
    for _ in range(2 if bench.plan.quick else 4):
        done = bench.load(system, "produce", topic, properties={"linger.ms": "5"}, **flags)
        rates.append(done.client.mb_per_s)
        bench.load(system, "consume", topic, partitions=_PARTITIONS)
    return max(rates), done.client.command


def _against_smallest_heap(bench: Bench) -> None:
    """Bisect the heaps: what a smaller heap holds, a larger one holds too. The cleaner's buffer is small then."""
    by_metric = {figure.metric.name: figure for figure in bench.figures if figure.scenario == bench.scenario}
    needed = by_metric[_METRICS[2].name].value(KAFKA)
    if needed is None:
        bench.note("no search for the smallest heap: Kafka was not measured with its default heap")
        return
    best: tuple[str, Sample] | None = None
    heaps = QUICK_HEAPS if bench.plan.quick else HEAPS
    low, high = 0, len(heaps)
    while low < high:
        bench.check_time(needed_s=15)
        middle = (low + high) // 2
        sample = _try_heap(bench, heaps[middle])
        if sample is not None and sample.values[2] >= HOLDS * needed:
            best, high = (heaps[middle], sample), middle
        else:
            low = middle + 1
    if best is None:
        bench.note(f"no heap up to {heaps[-1]} reached {HOLDS:.0%} of {needed:.0f} MB/s")
        return
    heap, sample = best
    for metric, value in zip(_METRICS, sample.values, strict=True):
        figure = Figure(bench.scenario, f"smallest Kafka heap that holds it: {heap}", metric)
        ours = median(by_metric[metric.name].samples.get(CORDWOOD, []))
        if ours is not None:
            figure.add(CORDWOOD, ours)
        figure.add(KAFKA, value, "", sample.command)
        bench.figures.append(figure)


def _try_heap(bench: Bench, heap: str) -> Sample | None:
    try:
        sample = measure_with_heap(bench, KAFKA, heap)
    except Exception as error:
        bench.say(f"heap {heap}: does not work: {str(error).splitlines()[0]}")
        return None
    bench.say(f"heap {heap}: {sample.values[2]:.0f} MB/s, RSS at most {sample.values[1]:.0f} MB")
    return sample
