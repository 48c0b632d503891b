"""`cordwood serve --workers 2` beside one broker and Kafka, under a load that one core cannot carry.

Two clients write, or read what was written. How much gets through depends on the cores that are left for the brokers;
the CPU that a gigabyte costs hardly does.
"""

from __future__ import annotations

import socket
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

from benchmarks import load
from benchmarks.bench import ONE_MESSAGE_REQUESTS, Bench, Sample, dispose
from benchmarks.figures import CORDWOOD, CPU, THROUGHPUT, WORKERS_CPU, Metric, per_gigabyte
from benchmarks.kafka_peer import free_port
from benchmarks.processes import Meter
from benchmarks.systems import CordwoodSystem, System

WORKERS = 2
CLIENTS = 2
PARTITIONS = 8
_BESIDE_KAFKA = (Metric("MB/s", "MB/s", THROUGHPUT), Metric("broker CPU per GB", "s", CPU))
_BESIDE_ONE = (Metric("CPU per GB, of one broker's", "", WORKERS_CPU), Metric("MB/s, of one broker's", ""))


class _Load(NamedTuple):
    words: str
    flags: dict[str, Any]
    properties: dict[str, str]


_LOADS = (
    _Load("1 KiB, acks=all", {"size": 1024, "acks": "all"}, {"linger.ms": "5"}),
    _Load("requests of one message, 100 B", {"size": 100, "acks": "1"}, ONE_MESSAGE_REQUESTS),
)


def workers(bench: Bench) -> None:
    """Two producers or two readers, 8 partitions, page cache. CPU is that of the supervisor and of all workers."""
    systems = bench.pair()
    shared = CordwoodSystem(
        bench.directory / "cordwood-workers", options=("--workers", str(WORKERS)), port=_two_ports()
    )
    try:
        if not bench.prepared([shared], lambda system: system.start()):
            return
        one = next((system for system in systems if system.name == CORDWOOD), None)
        peers = [system for system in systems if system.name != CORDWOOD]
        for words, run in (
            *((each.words, partial(_write, bench, each)) for each in _LOADS),
            ("readers of 1 KiB", partial(_read, bench)),
        ):
            bench.alternate(f"{WORKERS} workers, {words}", _BESIDE_KAFKA, [shared, *peers], run)
            if one is None:
                continue

            def beside_one(name: str, run: Callable[[System], Sample] = run, one: System = one) -> Sample:
                ours, alone = run(shared), run(one)
                return Sample((ours.values[1] / alone.values[1], ours.values[0] / alone.values[0]), "", ours.command)

            bench.alternate_names(f"{WORKERS} workers / one broker, {words}", _BESIDE_ONE, [CORDWOOD], beside_one)
    finally:
        dispose(shared)


def _write(bench: Bench, each: _Load, system: System) -> Sample:
    """Megabytes a second that all clients wrote, and the CPU of the brokers for a gigabyte."""
    with bench.topic(system, partitions=PARTITIONS) as topic:
        return _by_all_clients(
            bench, system, "produce", topic, each.properties, seconds=bench.plan.seconds, **each.flags
        )


def _read(bench: Bench, system: System) -> Sample:
    """Megabytes a second that all clients read, each of them everything, and the CPU of the brokers for a gigabyte."""
    with bench.topic(system, partitions=PARTITIONS) as topic:
        messages = bench.plan.fanout_bytes // 4 // 1024
        flags: dict[str, Any] = {"size": 1024, "acks": "all", "partitions": PARTITIONS, "messages": messages}
        bench.load(system, "produce", topic, properties={"linger.ms": "5"}, **flags)
        return _by_all_clients(bench, system, "consume", topic, {"queued.max.messages.kbytes": "65536"})


def _by_all_clients(
    bench: Bench, system: System, mode: str, topic: str, properties: dict[str, str], **flags: Any
) -> Sample:
    patience_s = bench.plan.timeout_s
    meter = Meter(*system.pids)
    flags |= {"partitions": PARTITIONS, "timeout": int(patience_s)}
    runs = [load.start(mode, system.bootstrap, topic, properties=properties, **flags) for _ in range(CLIENTS)]
    done = [run.result(patience_s + 10) for run in runs]
    used = meter.usage()
    bench.count_neighbours(used, sum(client.cpu_s for client in done))
    rate = sum(client.mb_per_s for client in done)
    cost = per_gigabyte(used.cpu_s, sum(client.size_bytes for client in done))
    return Sample((rate, cost), "", done[0].command)


def _two_ports() -> int:
    """A free port that another free one follows."""
    while True:
        port = free_port()
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port + 1))
            except OSError:
                continue
            return port
