"""How much per second, and what it costs the broker: produce, consume, and both with Kafka's own tools."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from typing import Any

from benchmarks import java_tools
from benchmarks.bench import Bench, Sample
from benchmarks.figures import CPU, THROUGHPUT, Metric, limit_of, per_gigabyte
from benchmarks.processes import Meter
from benchmarks.storage import settle
from benchmarks.systems import Durability, System

PARTITIONS = 4
SIZES = (100, 1024)
_LINGER = {"linger.ms": "5"}


def size_in_words(size: int) -> str:
    return f"{size // 1024} KiB" if size % 1024 == 0 else f"{size} B"


def _metrics(size: int, what: str) -> tuple[Metric, ...]:
    rate = Metric("messages/s", "/s", THROUGHPUT) if size == 100 else Metric("MB/s", "MB/s", THROUGHPUT)
    return rate, Metric(f"broker CPU per GB {what}", "s", CPU)


def produce(bench: Bench) -> None:
    """One producer, 4 partitions, linger 5 ms, batches up to 1 MB, no compression."""
    systems = bench.pair()
    durabilities: tuple[Durability, ...] = ("os", "disk")
    for durability in durabilities:
        for size in SIZES:
            for acks in ("1", "all"):
                words = "page cache" if durability == "os" else "fsync"
                case = f"{size_in_words(size)}, acks={acks}, {words}"

                def measure(
                    system: System, size: int = size, acks: str = acks, durability: Durability = durability
                ) -> Sample:
                    flags: dict[str, Any] = {"size": size, "acks": acks, "partitions": PARTITIONS}
                    with bench.topic(system, partitions=PARTITIONS, durability=durability) as topic:
                        seconds = bench.plan.seconds
                        done = bench.load(system, "produce", topic, properties=_LINGER, seconds=seconds, **flags)
                    rate = done.client.messages_per_s if size == 100 else done.client.mb_per_s
                    cost = per_gigabyte(done.broker.cpu_s, done.client.size_bytes)
                    return Sample((rate, cost), done.limit, done.client.command)

                bench.alternate(case, _metrics(size, "produced"), systems, measure)


def consume(bench: Bench) -> None:
    """One consumer reads 4 partitions from the beginning; the data is in the page cache."""
    systems = bench.pair()
    for size in SIZES:
        messages = bench.plan.backlog_bytes[size] // size
        with ExitStack() as stack:
            topics, able = filled_topics(bench, stack, systems, size, messages)

            def measure(system: System, size: int = size, topics: dict[str, str] = topics) -> Sample:
                done = bench.load(system, "consume", topics[system.name], partitions=PARTITIONS)
                rate = done.client.messages_per_s if size == 100 else done.client.mb_per_s
                cost = per_gigabyte(done.broker.cpu_s, done.client.size_bytes)
                return Sample((rate, cost), done.limit, done.client.command)

            bench.alternate(size_in_words(size), _metrics(size, "consumed"), able, measure)


def filled_topics(
    bench: Bench,
    stack: ExitStack,
    systems: Sequence[System],
    size: int,
    messages: int,
    settings: Mapping[str, str] | None = None,
) -> tuple[dict[str, str], list[System]]:
    """A topic with that many messages on each system, by its name, and the systems on which it could be made."""
    topics: dict[str, str] = {}

    def fill(system: System) -> None:
        topic = stack.enter_context(bench.topic(system, partitions=PARTITIONS, settings=settings))
        flags: dict[str, Any] = {"size": size, "partitions": PARTITIONS, "messages": messages}
        bench.load(system, "produce", topic, properties=_LINGER, **flags)
        settle(system.data)
        topics[system.name] = topic

    return topics, bench.prepared(systems, fill)


def java(bench: Bench) -> None:
    """ProducerPerformance and ConsumerPerformance with the Java client's defaults (batches of 16 KiB, linger 5 ms)."""
    if bench.jars is None:
        bench.note("left out: Kafka's tools come with its jars, which are not here")
        return
    systems = bench.pair()
    for size in (1024,) if bench.plan.quick else SIZES:
        for acks in ("1",) if bench.plan.quick else ("1", "all"):
            case = f"ProducerPerformance, {size_in_words(size)}, acks={acks}"

            def measure(system: System, size: int = size, acks: str = acks) -> Sample:
                with bench.topic(system, partitions=PARTITIONS) as topic:
                    return _java_produce(bench, system, topic, size, acks)

            bench.alternate(case, _metrics(size, "produced"), systems, measure, rounds=bench.plan.few_rounds)
    _java_consume(bench, systems)


def _java_produce(bench: Bench, system: System, topic: str, size: int, acks: str) -> Sample:
    assert bench.jars is not None
    meter = Meter(system.pid)
    done = java_tools.produce(
        bench.jars,
        system.bootstrap,
        topic,
        messages=bench.plan.java_messages[size],
        size=size,
        properties={"acks": acks},
        timeout_s=bench.plan.timeout_s * 2,
    )
    used = meter.usage()
    rate = done.messages_per_s if size == 100 else done.mb_per_s
    limit = _java_limit(done.seconds, used.busiest_thread_s)
    return Sample((rate, per_gigabyte(used.cpu_s, done.size_bytes)), limit, done.command)


def _java_limit(seconds: float, broker_thread_s: float) -> str:
    """Only the broker's side is known: the tool's CPU time includes the start of its JVM."""
    return limit_of(client=0, broker=broker_thread_s / seconds, machine=0)


def _java_consume(bench: Bench, systems: list[System]) -> None:
    jars = bench.jars
    assert jars is not None
    size = 1024
    messages = bench.plan.java_messages[size]
    able = []
    for system in systems:
        if java_tools.offers_groups(system.bootstrap):
            able.append(system)
        else:
            bench.note(f"ConsumerPerformance reads as a member of a group, which {system.name} does not offer yet")
    with ExitStack() as stack:
        topics, able = filled_topics(bench, stack, able, size, messages)

        def measure(system: System) -> Sample:
            meter = Meter(system.pid)
            done = java_tools.consume(
                jars,
                system.bootstrap,
                topics[system.name],
                messages=messages,
                size=size,
                timeout_s=bench.plan.timeout_s * 2,
            )
            used = meter.usage()
            limit = _java_limit(done.seconds, used.busiest_thread_s)
            return Sample((done.mb_per_s, per_gigabyte(used.cpu_s, done.size_bytes)), limit, done.command)

        case = f"ConsumerPerformance, {size_in_words(size)}"
        bench.alternate(case, _metrics(size, "consumed"), able, measure, rounds=bench.plan.few_rounds)
