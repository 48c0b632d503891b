"""Many partitions on one broker: create them, write to a thousand at once, start again with all of them."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

from benchmarks import processes
from benchmarks.bench import Bench, Measured, Sample
from benchmarks.figures import MEMORY, START, THROUGHPUT, Metric
from benchmarks.scenarios.start import time_first_ack
from benchmarks.systems import System, create_topics

PER_TOPIC = 1000
_METRICS = (
    Metric("created after", "s"),
    Metric("a message to each of 1,000", "s"),
    Metric("messages/s over 1,000 partitions", "/s", THROUGHPUT),
    Metric("RSS at most", "MB", MEMORY),
    Metric("clean stop", "s"),
    Metric("first ack after restart", "ms", START),
)


def partitions(bench: Bench) -> None:
    """Topics of 1,000 partitions. A producer of 100 B writes to all of one, acks=1, linger 50 ms for its batches."""
    total = bench.plan.partitions
    if bench.plan.quick:
        bench.note(f"a quick run makes {total:,} partitions; a full run makes 10,000")
    limit_s = 6 if bench.plan.quick else bench.plan.warm_up_s
    names = [f"many-{number}" for number in range(total // PER_TOPIC)]

    def measure(name: str) -> Sample:
        with bench.fresh(name) as system:
            system.start()
            created_s = _timed(lambda: _create(system, names))
            touched_s = _timed(lambda: _spread(bench, system, names[0], messages=1))
            bench.say(f"{name}: created after {created_s:.1f} s, first messages to 1,000 after {touched_s:.1f} s more")
            done = bench.until_no_faster(
                f"{name}: over 1,000 partitions",
                lambda: _spread(bench, system, names[0], seconds=bench.plan.seconds),
                limit_s=limit_s,
            )
            most = processes.peak_rss_bytes(system.pid)
            stopped_s = _timed(system.stop)
            again = time_first_ack(bench, system, topic=names[0])
        values = (created_s, touched_s, done.client.messages_per_s, most / 1e6, stopped_s, again.values[0])
        return Sample(values, done.limit, done.client.command)

    case = f"{total:,} partitions"
    bench.alternate_names(case, _METRICS, bench.names, measure, rounds=bench.plan.few_rounds, needed_s=40)


def _timed(action: Callable[[], object]) -> float:
    begin = time.monotonic()
    action()
    return time.monotonic() - begin


def _create(system: System, names: Sequence[str]) -> None:
    for topic in names:  # one at a time: Kafka refuses a request that makes 10,000 partitions
        create_topics(system, [topic], PER_TOPIC, system.topic_settings("os"), timeout_s=60)


def _spread(bench: Bench, system: System, topic: str, **flags: Any) -> Measured:
    """The client sends one message to each partition before its time starts: Kafka still makes their logs then."""
    properties = {"linger.ms": "50"}
    return bench.load(system, "produce", topic, properties=properties, timeout_s=60, partitions=PER_TOPIC, **flags)
