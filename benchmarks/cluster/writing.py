"""acks=all on three replicas, two of which must be in sync: rates, CPU of the whole cluster, and latencies."""

from __future__ import annotations

from typing import Any

from benchmarks.bench import Bench, Sample
from benchmarks.figures import AS_MANY, AS_SOON, CPU, Metric, Target, per_gigabyte
from benchmarks.scenarios.throughput import size_in_words
from benchmarks.systems import Durability, System

PARTITIONS = 6
STEADY_PER_S = 1_000
_LINGER = {"linger.ms": "5"}
_SYNCED = Target(1.5, at_least=False)
DURABILITIES: tuple[Durability, ...] = ("os", "disk")


def in_words(durability: Durability) -> str:
    return "page cache" if durability == "os" else "fsync"


def produce(bench: Bench) -> None:
    """One producer, linger 5 ms, batches up to 1 MB, no compression."""
    systems = bench.pair()
    cases = [(durability, size, PARTITIONS) for durability in DURABILITIES for size in (100, 1024)]
    cases += [("os", 1024, 100), ("disk", 1024, 100)]
    for durability, size, partitions in cases:
        case = f"{size_in_words(size)}, {partitions} partitions, {in_words(durability)}"

        def measure(
            system: System, size: int = size, durability: Durability = durability, partitions: int = partitions
        ) -> Sample:
            flags: dict[str, Any] = {"size": size, "acks": "all", "partitions": partitions}
            with bench.topic(system, partitions=partitions, durability=durability) as topic:
                seconds = bench.plan.seconds
                done = bench.load(system, "produce", topic, properties=_LINGER, seconds=seconds, **flags)
            rate = done.client.messages_per_s if size == 100 else done.client.mb_per_s
            cost = per_gigabyte(done.broker.cpu_s, done.client.size_bytes)
            return Sample((rate, cost), done.limit, done.client.command)

        rate = Metric("messages/s", "/s", AS_MANY) if size == 100 else Metric("MB/s", "MB/s", AS_MANY)
        bench.alternate(case, (rate, Metric("CPU of the cluster per GB", "s", CPU)), systems, measure)


def latency(bench: Bench) -> None:
    """One message at a time; and a steady rate, where latency counts from the moment a message was due."""
    systems = bench.pair()
    for durability in DURABILITIES:
        target = AS_SOON if durability == "os" else _SYNCED
        metrics = (Metric("p50", "us"), Metric("p99", "us", target), Metric("p99.9", "us"))

        def one_at_a_time(system: System, durability: Durability = durability) -> Sample:
            with bench.topic(system, durability=durability) as topic:
                done = bench.load(system, "sync", topic, seconds=bench.plan.seconds, acks="all")
            values = [done.client.latency_us(name) for name in ("p50", "p99", "p999")]
            return Sample(values, done.limit, done.client.command)

        def steady(system: System, durability: Durability = durability) -> Sample:
            flags: dict[str, Any] = {"rate": STEADY_PER_S, "size": 1024, "acks": "all", "partitions": PARTITIONS}
            with bench.topic(system, partitions=PARTITIONS, durability=durability) as topic:
                done = bench.load(system, "steady", topic, seconds=bench.plan.steady_s, **flags)
            values = [done.client.latency_us(name) for name in ("p50", "p99", "p999")]
            return Sample(values, done.limit, done.client.command)

        bench.alternate(f"one of 100 B at a time, {in_words(durability)}", metrics, systems, one_at_a_time)
        case = f"{STEADY_PER_S:,}/s of 1 KiB, {PARTITIONS} partitions, {in_words(durability)}"
        bench.alternate(case, metrics, systems, steady)
