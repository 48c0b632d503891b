"""Kafka's own ProducerPerformance and ConsumerPerformance as a second client, with the Java client's defaults."""

from __future__ import annotations

import os
import re
import socket
import struct
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from benchmarks.kafka_peer import KafkaJars
from benchmarks.load import LoadFailed, LoadResult

_JVM_FLAGS = ("-Xmx512m", "-Xms512m")  # as the scripts around these tools set it
_SENT = re.compile(r"^(\d+) records sent, ([\d.]+) records/sec .*?, (\d+) ms 50th, .*? (\d+) ms 99th", re.MULTILINE)
JOIN_GROUP = 11


def produce(
    jars: KafkaJars,
    bootstrap: str,
    topic: str,
    *,
    messages: int,
    size: int,
    properties: Mapping[str, str],
    timeout_s: float,
) -> LoadResult:
    """As fast as the Java client can; the tool counts from its first record to its last acknowledgement."""
    given = [f"{name}={value}" for name, value in {"bootstrap.servers": bootstrap, **properties}.items()]
    command = jars.command(
        "org.apache.kafka.tools.ProducerPerformance",
        *("--topic", topic, "--num-records", str(messages), "--record-size", str(size)),
        *("--throughput", "-1", "--producer-props", *given),
        jvm_flags=_JVM_FLAGS,
    )
    output, cpu_s = _run(command, timeout_s)
    sent, rate, p50_ms, p99_ms = read_producer_summary(output)
    if sent != messages:
        raise LoadFailed(f"{sent} of {messages} records were sent: {output[-500:]}")
    fields = {"p50_us": p50_ms * 1000, "p99_us": p99_ms * 1000}
    return LoadResult(" ".join(command), sent, sent * size, sent / rate, cpu_s, 0.0, fields)


def consume(jars: KafkaJars, bootstrap: str, topic: str, *, messages: int, size: int, timeout_s: float) -> LoadResult:
    """A group of one reads the topic; joining the group is left out of the time."""
    command = jars.command(
        "org.apache.kafka.tools.ConsumerPerformance",
        *("--bootstrap-server", bootstrap, "--topic", topic, "--messages", str(messages), "--timeout", "20000"),
        jvm_flags=_JVM_FLAGS,
    )
    output, cpu_s = _run(command, timeout_s)
    received, seconds = read_consumer_summary(output)
    if received < messages:
        raise LoadFailed(f"{received} of {messages} records were received: {output[-500:]}")
    return LoadResult(" ".join(command), received, received * size, seconds, cpu_s, 0.0, {})


def read_producer_summary(output: str) -> tuple[int, float, int, int]:
    """Records, records per second, p50 and p99 in ms, of the tool's last line."""
    found = _SENT.findall(output)
    if not found:
        raise LoadFailed(f"no summary from ProducerPerformance: {output[-500:]}")
    sent, rate, p50_ms, p99_ms = found[-1]
    return int(sent), float(rate), int(p50_ms), int(p99_ms)


def read_consumer_summary(output: str) -> tuple[int, float]:
    """Records and the seconds of fetching."""
    rows = [[cell.strip() for cell in line.split(",")] for line in output.splitlines() if line.count(",") == 9]
    if len(rows) != 2:
        raise LoadFailed(f"no summary from ConsumerPerformance: {output[-500:]}")
    named = dict(zip(rows[0], rows[1], strict=True))
    return int(named["data.consumed.in.nMsg"]), max(int(named["fetch.time.ms"]), 1) / 1000


def offers_groups(bootstrap: str) -> bool:
    """Whether the broker advertises JoinGroup, without which ConsumerPerformance cannot run."""
    return JOIN_GROUP in advertised_apis(bootstrap)


def advertised_apis(bootstrap: str) -> set[int]:
    """The API keys in the broker's answer to ApiVersions v0."""
    host, _, port = bootstrap.rpartition(":")
    request = struct.pack(">hhih5s", 18, 0, 1, 5, b"bench")
    with socket.create_connection((host, int(port)), timeout=10) as connection:
        connection.sendall(struct.pack(">i", len(request)) + request)
        stream = connection.makefile("rb")
        (size,) = struct.unpack(">i", stream.read(4))
        answer = stream.read(size)
    (count,) = struct.unpack_from(">i", answer, 6)
    return {struct.unpack_from(">h", answer, 10 + 6 * place)[0] for place in range(count)}


def _run(command: Sequence[str], timeout_s: float) -> tuple[str, float]:
    """Standard output and the CPU seconds of a tool."""
    before = os.times()
    with tempfile.TemporaryDirectory() as directory:
        errors = Path(directory) / "stderr"
        with errors.open("wb") as stderr:
            try:
                done = subprocess.run(
                    command, stdout=subprocess.PIPE, stderr=stderr, text=True, timeout=timeout_s, check=False
                )
            except subprocess.TimeoutExpired:
                raise LoadFailed(f"no result within {timeout_s:.0f} s: {' '.join(command)}") from None
        if done.returncode != 0:
            raise LoadFailed(f"ended with {done.returncode}: {errors.read_text(errors='replace')[-500:]}")
    after = os.times()
    cpu_s = after.children_user + after.children_system - before.children_user - before.children_system
    return done.stdout, cpu_s
