"""Round trips: one message at a time, and one-message requests without waiting."""

from __future__ import annotations

from benchmarks.bench import ONE_MESSAGE_REQUESTS, Bench, Sample
from benchmarks.figures import LATENCY_P99, THROUGHPUT, Metric
from benchmarks.systems import Durability, System

_SYNC = (Metric("p50", "us"), Metric("p99", "us", LATENCY_P99), Metric("p99.9", "us"))
_REQUESTS = (Metric("requests/s", "/s", THROUGHPUT), Metric("broker CPU per request", "us"))


def sync(bench: Bench) -> None:
    """A producer that sends 100 B, waits for the acknowledgement, and sends the next."""
    systems = bench.pair()
    durabilities: tuple[Durability, ...] = ("os", "disk")
    for durability in durabilities:
        for acks in ("1", "all"):
            case = f"acks={acks}, {'page cache' if durability == 'os' else 'fsync'}"

            def measure(system: System, acks: str = acks, durability: Durability = durability) -> Sample:
                with bench.topic(system, durability=durability) as topic:
                    done = bench.load(system, "sync", topic, seconds=bench.plan.seconds, acks=acks)
                latencies = [done.client.latency_us(name) for name in ("p50", "p99", "p999")]
                return Sample(latencies, done.limit, done.client.command)

            bench.alternate(case, _SYNC, systems, measure)


def requests(bench: Bench) -> None:
    """100 B in a Produce request of its own, up to 64 of them on the way on one connection."""

    def measure(system: System) -> Sample:
        with bench.topic(system) as topic:
            done = bench.load(system, "produce", topic, properties=ONE_MESSAGE_REQUESTS, seconds=bench.plan.seconds)
        cost_us = done.broker.cpu_s * 1e6 / done.client.messages
        return Sample((done.client.messages_per_s, cost_us), done.limit, done.client.command)

    bench.alternate("100 B, acks=1, page cache", _REQUESTS, bench.pair(), measure)
