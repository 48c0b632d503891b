"""OffsetCommit requests a second: one at a time, and several on the way on one connection."""

from __future__ import annotations

from benchmarks.bench import Bench, Measured, Sample
from benchmarks.figures import AS_MANY, Metric
from benchmarks.systems import Durability, System, keep_internal_topics

IN_FLIGHT = (1, 10, 100)
"""Commits on the way at once: as many as consumers that each wait for their own."""
_METRICS = (
    Metric("commits/s", "/s", AS_MANY),
    Metric("p99", "us"),
    Metric("broker CPU per commit", "us"),
)


def commits(bench: Bench) -> None:
    """One position in each request, of a reader that assigns its partitions itself."""
    systems = bench.pair()
    durabilities: tuple[Durability, ...] = ("os", "disk")
    for durability in durabilities:

        def prepare(system: System, durability: Durability = durability) -> None:
            keep_internal_topics(system, durability)
            bench.warm_up_to(f"{system.name}: commits", lambda: _commit(bench, system, max(IN_FLIGHT)))

        able = bench.prepared(systems, prepare)
        for in_flight in IN_FLIGHT:

            def measure(system: System, in_flight: int = in_flight) -> Sample:
                done = _commit(bench, system, in_flight)
                cost_us = done.broker.cpu_s * 1e6 / done.client.messages
                values = (done.client.messages_per_s, done.client.latency_us("p99"), cost_us)
                return Sample(values, done.limit, done.client.command)

            words = "one at a time" if in_flight == 1 else f"{in_flight} on the way"
            case = f"{words}, {'page cache' if durability == 'os' else 'fsync'}"
            bench.alternate(case, _METRICS, able, measure, rounds=bench.plan.few_rounds)


def _commit(bench: Bench, system: System, in_flight: int) -> Measured:
    with bench.topic(system) as topic:
        return bench.load(system, "commits", topic, group=topic, in_flight=in_flight, seconds=bench.plan.seconds)
