"""Transactions a second, and how long until a read_committed consumer has what was written in one."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from benchmarks.bench import Bench, Measured, Sample
from benchmarks.figures import AS_MANY, AS_SOON, Metric
from benchmarks.systems import Durability, System, keep_internal_topics

SIZE = 100
PRODUCERS = (1, 8)
MESSAGES = (1, 100)
COMMITTED_PER_S = 20
"""Few enough that a broker which needs 40 ms for a transaction keeps up with it: librdkafka waits 20 ms before it tries
again when the last transaction is not over."""

_RATE = (
    Metric("transactions/s", "/s", AS_MANY),
    Metric("p99", "ms"),
    Metric("broker CPU per transaction", "us"),
)
_DELAY = (Metric("p50", "ms"), Metric("p99", "ms", AS_SOON), Metric("p99.9", "ms"))


def transactions(bench: Bench) -> None:
    """Begin, produce messages of 100 B to one partition, commit; each producer has a partition of its own."""
    for durability, systems in _durabilities(bench):
        shortened = bench.plan.quick and durability == "disk"
        for producers in PRODUCERS[:1] if shortened else PRODUCERS:
            for messages in MESSAGES[:1] if shortened else MESSAGES:

                def measure(
                    system: System,
                    producers: int = producers,
                    messages: int = messages,
                    durability: Durability = durability,
                ) -> Sample:
                    done = _transactions(bench, system, durability, producers, messages)
                    cost_us = done.broker.cpu_s * 1e6 / int(done.client.fields["transactions"])
                    rate = float(done.client.fields["transactions_per_s"])
                    return Sample(
                        (rate, done.client.latency_us("p99") / 1000, cost_us), done.limit, done.client.command
                    )

                who = "1 producer" if producers == 1 else f"{producers} producers"
                what = "1 message" if messages == 1 else f"{messages} messages"
                case = f"{who}, {what}, {_in_words(durability)}"
                bench.alternate(case, _RATE, systems, measure, rounds=bench.plan.few_rounds)


def committed(bench: Bench) -> None:
    """20 transactions of one message a second; latency counts from when a message was due to when the reader has it."""
    for durability, systems in _durabilities(bench, ("os",) if bench.plan.quick else ("os", "disk")):

        def measure(system: System, durability: Durability = durability) -> Sample:
            flags: dict[str, Any] = {"rate": COMMITTED_PER_S, "size": SIZE, "seconds": bench.plan.steady_s}
            with bench.topic(system, durability=durability) as topic:
                done = bench.load(system, "committed", topic, group=topic, **flags)
            delays_ms = [done.client.latency_us(name) / 1000 for name in ("p50", "p99", "p999")]
            return Sample(delays_ms, "", done.client.command)

        bench.alternate(
            f"{COMMITTED_PER_S}/s, {_in_words(durability)}", _DELAY, systems, measure, rounds=bench.plan.few_rounds
        )


def _durabilities(
    bench: Bench, durabilities: tuple[Durability, ...] = ("os", "disk")
) -> Iterable[tuple[Durability, list[System]]]:
    """Each durability with the systems that keep their topics with it, warm."""
    for durability in durabilities:

        def prepare(system: System, durability: Durability = durability) -> None:
            keep_internal_topics(system, durability)
            what = f"{system.name}: transactions"
            bench.warm_up_to(what, lambda: _transactions(bench, system, durability, PRODUCERS[-1], 1))

        yield durability, bench.prepared(bench.pair(), prepare)


def _transactions(bench: Bench, system: System, durability: Durability, producers: int, messages: int) -> Measured:
    flags: dict[str, Any] = {"producers": producers, "partitions": producers, "per_transaction": messages, "size": SIZE}
    with bench.topic(system, partitions=producers, durability=durability) as topic:
        return bench.load(system, "transactions", topic, group=topic, seconds=bench.plan.seconds, **flags)


def _in_words(durability: Durability) -> str:
    return "page cache" if durability == "os" else "fsync"
