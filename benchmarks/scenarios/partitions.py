"""Many partitions on one broker: create them, write to a thousand at once, start again with all of them."""

from __future__ import annotations

import time

from benchmarks import processes
from benchmarks.bench import Bench, Sample
from benchmarks.figures import MEMORY, START, THROUGHPUT, Metric
from benchmarks.scenarios.start import time_first_ack
from benchmarks.systems import create_topics

PER_TOPIC = 1000
_METRICS = (
    Metric("created after", "s"),
    Metric("messages/s over 1,000 partitions", "/s", THROUGHPUT),
    Metric("RSS at most", "MB", MEMORY),
    Metric("first ack after restart", "ms", START),
)


def partitions(bench: Bench) -> None:
    """Topics of 1,000 partitions. A producer of 100 B writes to all of one, acks=1, linger 50 ms for its batches."""
    total = bench.plan.partitions
    if bench.plan.quick:
        bench.note(f"a quick run makes {total:,} partitions; a full run makes 10,000")
    names = [f"many-{number}" for number in range(total // PER_TOPIC)]

    def measure(name: str) -> Sample:
        with bench.fresh(name) as system:
            system.start()
            begin = time.monotonic()
            settings = system.topic_settings("os")
            for topic in names:  # one at a time: Kafka refuses a request that makes 10,000 partitions
                create_topics(system, [topic], PER_TOPIC, settings, timeout_s=60)
            created_s = time.monotonic() - begin
            bench.say(f"{name}: {total:,} partitions created after {created_s:.1f} s")
            done = bench.load(
                system,
                "produce",
                names[0],
                properties={"linger.ms": "50"},
                partitions=PER_TOPIC,
                seconds=bench.plan.seconds,
            )
            most = processes.peak_rss_bytes(system.pid)
            system.stop()
            again = time_first_ack(bench, system, topic=names[0])
        values = (created_s, done.client.messages_per_s, most / 1e6, again.values[0])
        return Sample(values, done.limit, done.client.command)

    bench.alternate_names(f"{total:,} partitions", _METRICS, bench.names, measure, rounds=bench.plan.few_rounds)
