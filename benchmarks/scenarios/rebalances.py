"""Rebalances as users meet them: real consumers, and both brokers as they are shipped.

Nothing is set but the addresses. Nearly all of the time is spent waiting: for the initial delay of a new group (3 s in
Kafka, 100 ms in Cordwood), and for the heartbeats by which members hear of a change. So a group of each protocol can be
measured at once, a few changes say enough, and no JVM is warmed up but by the larger groups, which come first.

One consumer that joins an empty group of the consumer protocol waits for nobody, so that a sync is a good part of the
time. As they are shipped Cordwood waits for it and Kafka does not: there the same durability on both sides is
measured, too.
"""

from __future__ import annotations

import uuid
from contextlib import ExitStack

from benchmarks import consumers
from benchmarks.bench import Bench, Sample
from benchmarks.figures import CORDWOOD, KAFKA, REBALANCE, Metric
from benchmarks.load import LoadResult, Run
from benchmarks.processes import Meter
from benchmarks.scenarios.groups import PARTITIONS, PROTOCOLS
from benchmarks.systems import Durability, System, keep_internal_topics

HEARTBEAT_MS = {("classic", CORDWOOD): 3000, ("classic", KAFKA): 3000}
HEARTBEAT_MS |= {("consumer", CORDWOOD): 1000, ("consumer", KAFKA): 5000}
"""The interval in force: librdkafka's in the classic protocol, the broker's in the other."""

CHANGES = {100: 3, 10: 3, 1: 9}
"""How often one joins and leaves, by the number of members."""

DURABILITIES: dict[Durability, str] = {"os": "page cache", "disk": "fsync"}

QUICK_S = 60
"""About what a quick run of this takes."""


def rebalances(bench: Bench) -> None:
    """A topic of 200 partitions. A rebalance is over when they are shared evenly by the members that are there."""
    bench.check_time(QUICK_S)
    with ExitStack() as stack:
        topics: dict[str, str] = {}

        def prepare(system: System) -> None:
            system.start()
            topics[system.name] = stack.enter_context(bench.topic(system, partitions=PARTITIONS))

        started = [stack.enter_context(bench.fresh(name, as_shipped=True)) for name in bench.names]
        systems = bench.prepared(started, prepare)
        for members in (10,) if bench.plan.quick else CHANGES:

            def measure(system: System, members: int = members) -> Sample:
                return _both_protocols(bench, system, topics[system.name], members)

            case = f"as shipped, {members} consumer{'s' if members > 1 else ''}"
            bench.alternate(case, _metrics(members), systems, measure, rounds=1)
        if not bench.plan.quick:
            for durability, words in DURABILITIES.items():

                def keep(system: System, durability: Durability = durability) -> None:
                    keep_internal_topics(system, durability)

                systems = bench.prepared(systems, keep)
                bench.alternate(f"{words}, 1 consumer", _metrics(1), systems, measure, rounds=1)


def _metrics(members: int) -> list[Metric]:
    changes = ("one more joins", "one leaves") if members > 1 else ("one joins an empty group",)
    return [Metric(f"{words}: {change}, p50", "ms", REBALANCE) for words in PROTOCOLS.values() for change in changes]


def _both_protocols(bench: Bench, system: System, topic: str, members: int) -> Sample:
    meter = Meter(system.pid)
    runs = [_start(bench, system, topic, members, protocol) for protocol in PROTOCOLS]
    try:
        done = [run.result(10 * bench.plan.timeout_s) for run in runs]
    finally:
        for run in runs:
            if run.running:
                run.abandon()
    bench.count_neighbours(meter.usage(), sum(each.cpu_s for each in done))
    values = [value for each in done for value in _values_ms(each, members)]
    return Sample(values, command="; ".join(each.command for each in done))


def _values_ms(done: LoadResult, members: int) -> list[float]:
    changes = ("joining_p50", "leaving_p50") if members > 1 else ("joining_p50",)
    return [done.latency_us(change) / 1000 for change in changes]


def _start(bench: Bench, system: System, topic: str, members: int, protocol: str) -> Run:
    return consumers.start(
        system.bootstrap,
        topic,
        group=f"consumers-{uuid.uuid4()}",  # those that are gone without a word stay until their sessions end
        protocol=protocol,
        members=members,
        partitions=PARTITIONS,
        changes=1 if bench.plan.quick else CHANGES[members],
        heartbeat_ms=HEARTBEAT_MS[protocol, system.name],
        timeout=bench.plan.timeout_s,
    )
