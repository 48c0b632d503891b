"""What TLS and log-ins cost: produce, consume, one message at a time, and new connections."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from contextlib import ExitStack
from typing import Any

from benchmarks.bench import ONE_MESSAGE_REQUESTS, Bench, Measured, Sample, dispose
from benchmarks.figures import KAFKA, Metric, Target, limit_of, per_gigabyte
from benchmarks.load import LoadFailed
from benchmarks.processes import Meter
from benchmarks.scenarios.throughput import PARTITIONS, SIZES, filled_topics, size_in_words
from benchmarks.secure_listener import SecureListener, add_user
from benchmarks.systems import CordwoodSystem, KafkaSystem, System

_AT_MOST = Target(0.9, at_least=False)
_LOG_INS = (
    Metric("log-ins/s", "/s", Target(1.0, at_least=True)),
    Metric("broker CPU per log-in", "us"),
)
_SYNC = (Metric("p50", "us"), Metric("p99", "us", _AT_MOST))
_LINGER = {"linger.ms": "5"}
_CONNECTING = 2
"""Processes that connect at the same time: as many as there are cores on a small machine."""


class _Secured:
    """A running broker of each kind, and the listener of each that is measured."""

    def __init__(self, bench: Bench) -> None:
        self._bench = bench
        self.listeners = {name: SecureListener(bench.directory / f"tls-{name}") for name in bench.names}
        self.systems = [self._new_system(name) for name in bench.names]

    def _new_system(self, name: str) -> System:
        directory, listener = self._bench.directory / f"secure-{name}", self.listeners[name]
        if name == KAFKA:
            assert self._bench.jars is not None
            system: System = KafkaSystem(directory, self._bench.jars, secure=listener)
        else:
            system = CordwoodSystem(directory, secure=listener)
        self._bench.labels[name] = system.label
        return system

    def start(self) -> None:
        self.systems = self._bench.prepared(self.systems, self._start)

    def _start(self, system: System) -> None:
        self.listeners[system.name].write_files()
        system.start()
        add_user(system.bootstrap)

        def one_round() -> Measured:
            with self._bench.topic(system, partitions=PARTITIONS) as topic:
                small = self.load(system, "produce", topic, properties=ONE_MESSAGE_REQUESTS, seconds=1.5)
                self.load(system, "produce", topic, seconds=0.7, size=1024, partitions=PARTITIONS)
                self.load(system, "consume", topic, partitions=PARTITIONS)
            return small

        limit_s = self._bench.plan.warm_up_s
        self._bench.until_no_faster(f"warming up {system.name} with TLS", one_round, limit_s=limit_s)

    def load(
        self, system: System, mode: str, topic: str, *, properties: Mapping[str, str] | None = None, **flags: Any
    ) -> Measured:
        listener = self.listeners[system.name]
        # Apache Kafka 4 refuses SCRAM of librdkafka before 2.6.1. The log-in is over before the clock runs.
        settings = {**(properties or {}), **listener.client("PLAIN")}
        return self._bench.load(system, mode, topic, properties=settings, bootstrap=listener.bootstrap, **flags)


def secure(bench: Bench) -> None:
    """SASL_SSL, TLS 1.3 with AES-256-GCM; new connections by SCRAM-SHA-256 with 4,096 iterations."""
    secured = _Secured(bench)
    made = list(secured.systems)
    try:
        secured.start()
        _produce(bench, secured)
        _consume(bench, secured)
        _sync(bench, secured)
        _log_ins(bench, secured)
    finally:
        for system in made:
            dispose(system)


def _metrics(what: str) -> tuple[Metric, ...]:
    return Metric("MB/s", "MB/s"), Metric(f"broker CPU per GB {what}", "s", _AT_MOST)


def _produce(bench: Bench, secured: _Secured) -> None:
    for size in SIZES:

        def measure(system: System, size: int = size) -> Sample:
            with bench.topic(system, partitions=PARTITIONS) as topic:
                flags: dict[str, Any] = {"size": size, "partitions": PARTITIONS, "seconds": bench.plan.seconds}
                done = secured.load(system, "produce", topic, properties=_LINGER, **flags)
            cost = per_gigabyte(done.broker.cpu_s, done.client.size_bytes)
            return Sample((done.client.mb_per_s, cost), done.limit, done.client.command)

        bench.alternate(f"produce {size_in_words(size)}", _metrics("produced"), secured.systems, measure)


def _consume(bench: Bench, secured: _Secured) -> None:
    for size in SIZES:
        with ExitStack() as stack:
            messages = bench.plan.backlog_bytes[size] // size
            topics, able = filled_topics(bench, stack, secured.systems, size, messages)

            def measure(system: System, topics: dict[str, str] = topics) -> Sample:
                done = secured.load(system, "consume", topics[system.name], partitions=PARTITIONS)
                cost = per_gigabyte(done.broker.cpu_s, done.client.size_bytes)
                return Sample((done.client.mb_per_s, cost), done.limit, done.client.command)

            bench.alternate(f"consume {size_in_words(size)}", _metrics("consumed"), able, measure)


def _sync(bench: Bench, secured: _Secured) -> None:
    def measure(system: System) -> Sample:
        with bench.topic(system) as topic:
            done = secured.load(system, "sync", topic, seconds=bench.plan.seconds, acks="1")
        return Sample([done.client.latency_us(name) for name in ("p50", "p99")], done.limit, done.client.command)

    bench.alternate("one message at a time, 100 B", _SYNC, secured.systems, measure)


def _log_ins(bench: Bench, secured: _Secured) -> None:
    def measure(system: System) -> Sample:
        listener = secured.listeners[system.name]
        command = [
            sys.executable,
            "-m",
            "benchmarks.log_ins",
            listener.bootstrap,
            json.dumps(listener.client("SCRAM-SHA-256")),
        ]
        command += ["--seconds", f"{bench.plan.seconds}"]
        clients = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(_CONNECTING)]
        meter = Meter(*system.pids)
        try:
            told = [json.loads(_output(client, bench.plan.timeout_s)) for client in clients]
        finally:
            for client in clients:
                client.kill()
        used = meter.usage()
        count = sum(client["log_ins"] for client in told)
        busiest = max(client["cpu_s"] / client["seconds"] for client in told)
        limit = limit_of(client=busiest, broker=used.busiest_thread_s / used.wall_s, machine=used.machine_share)
        rate = sum(client["log_ins"] / client["seconds"] for client in told)
        # Each client connects once before its clock runs.
        return Sample((rate, used.cpu_s * 1e6 / (count + len(clients))), limit, " ".join(command[:4]))

    bench.alternate(f"new connections, {_CONNECTING} clients", _LOG_INS, secured.systems, measure)


def _output(client: subprocess.Popen[str], timeout_s: float) -> str:
    output, _ = client.communicate(timeout=timeout_s)
    if client.returncode:
        raise LoadFailed(f"benchmarks.log_ins ended with {client.returncode}")
    return output
