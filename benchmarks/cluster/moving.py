"""Partitions on the move while a producer goes on: a node is emptied, a node is added.

Bytes copied are those of all answers to fetches, less what the followers of the producer's topic fetch. The least that
a move can copy is one copy of each replica that changes its place.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from confluent_kafka.admin import AdminClient, NewTopic

from benchmarks import load
from benchmarks.bench import Bench, Sample, dispose
from benchmarks.cluster.clusters import MIN_IN_SYNC, CordwoodCluster
from benchmarks.figures import CORDWOOD, Metric, Target
from benchmarks.storage import segments
from benchmarks.systems import SystemFailed

RATE_PER_S = 500
SIZE = 1024
SLICE_S = 3
_STEADY = "steady"
_STEADY_PARTITIONS = 6
_MOVED_WITHIN_S = 900
_LEAST = Target(1.2, at_least=False, of_own_value=True)
_METRICS = (
    Metric("time", "s"),
    Metric("copied, of the least", "x", _LEAST),
    Metric("copied", "MB/s"),
    Metric("producer's p99 before", "us"),
    Metric("producer's p99 meanwhile, median of slices", "us"),
    Metric("producer's p99 meanwhile, worst slice", "us"),
    Metric("p99 meanwhile, of that before", "x"),
)


def drain(bench: Bench) -> None:
    """`cordwood cluster drain` of one of four nodes, with and without a throttle. 24 partitions of 3 replicas."""
    size_bytes = 200_000_000 if bench.plan.quick else 4_000_000_000
    rate_mib = 2 if bench.plan.quick else 20
    for throttled in (False, True):

        def measure(name: str, throttled: bool = throttled) -> Sample:
            with _cluster(bench, "drain", (1, 2, 3, 4)) as cluster:
                topic = _filled(bench, cluster, 24, size_bytes)
                least = _bytes(cluster, topic, [4])
                options = ["drain", "4", *(["--throttle", f"{rate_mib}MiB"] if throttled else [])]
                return _moved(bench, cluster, options, lambda: least)

        words = f"throttled to {rate_mib} MiB/s a node" if throttled else "not throttled"
        bench.alternate_names(f"{size_bytes / 1e9:g} GB, {words}", _METRICS, [CORDWOOD], measure, rounds=1)


def growth(bench: Bench) -> None:
    """`cordwood cluster rebalance` after a fourth node joined three with 1,000 partitions of 3 replicas."""
    size_bytes = 200_000_000 if bench.plan.quick else 4_000_000_000
    partitions = 300 if bench.plan.quick else 1000

    def measure(name: str) -> Sample:
        with _cluster(bench, "growth", (1, 2, 3)) as cluster:
            _filled(bench, cluster, partitions, size_bytes)
            cluster.add_node(4)
            return _moved(bench, cluster, ["rebalance", "--sample", "0"], lambda: _bytes(cluster, "", [4]))

    case = f"{partitions:,} partitions, {size_bytes / 1e9:g} GB"
    bench.alternate_names(case, _METRICS, [CORDWOOD], measure, rounds=1)


@contextmanager
def _cluster(bench: Bench, name: str, nodes: Sequence[int]) -> Iterator[CordwoodCluster]:
    directory = bench.directory / f"{name}-{time.monotonic_ns()}"
    directory.mkdir(parents=True)
    cluster = CordwoodCluster(directory, nodes=nodes, metered=True)
    try:
        cluster.start()
        yield cluster
    finally:
        dispose(cluster)


def _filled(bench: Bench, cluster: CordwoodCluster, partitions: int, size_bytes: int) -> str:
    """A topic with so many bytes, and beside it the producer's topic, which has its replicas on nodes 1 to 3."""
    topic = "filled"
    places = [[1 + (index + step) % 3 for step in range(3)] for index in range(_STEADY_PARTITIONS)]
    config = {**MIN_IN_SYNC, "ack.durability": "os"}
    topics = [
        NewTopic(topic, partitions, 3, config=config),
        NewTopic(_STEADY, _STEADY_PARTITIONS, replica_assignment=places, config=config),
    ]
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 0})
    for done in admin.create_topics(topics, operation_timeout=60, request_timeout=60).values():
        done.result()
    bench.say(f"writing {size_bytes / 1e6:,.0f} MB into {partitions} partitions")
    flags: dict[str, Any] = {"size": SIZE, "partitions": partitions, "messages": size_bytes // SIZE, "acks": "all"}
    bench.load(cluster, "produce", topic, properties={"linger.ms": "20"}, timeout_s=300, **flags)
    return topic


def _moved(bench: Bench, cluster: CordwoodCluster, options: Sequence[str], least: Callable[[], int]) -> Sample:
    before = _Producer(cluster)
    before.one_slice()
    fetched, steady = cluster.fetched_bytes(), _bytes(cluster, _STEADY, cluster.nodes)
    with _Producer(cluster) as producer:
        began_s = time.monotonic()
        command = _command(cluster, options)
        bench.say(" ".join(command[-8:]))
        done = subprocess.run(command, capture_output=True, text=True, timeout=_MOVED_WITHIN_S, check=False)
        seconds = time.monotonic() - began_s
    if done.returncode != 0:
        raise SystemFailed(
            f"{' '.join(options)} ended with {done.returncode}:\n{done.stdout[-500:]}{done.stderr[-500:]}"
        )
    followed = (_bytes(cluster, _STEADY, cluster.nodes) - steady) * 2 / 3
    copied = cluster.fetched_bytes() - fetched - followed
    p99_before, p99s = before.p99s_us[0], producer.p99s_us
    middle, worst = statistics.median(p99s), max(p99s)
    least_bytes = least()
    assert least_bytes > 0, "nothing had to move"
    values = (seconds, copied / least_bytes, copied / seconds / 1e6, p99_before, middle, worst, middle / p99_before)
    return Sample(values, "", "cordwood cluster " + " ".join(options))


def _command(cluster: CordwoodCluster, options: Sequence[str]) -> list[str]:
    installed = Path(sys.executable).with_name("cordwood")
    program = [str(installed)] if installed.exists() else [sys.executable, "-m", "cordwood.cli"]
    undo = cluster.directory / "undo.json"
    return [*program, "cluster", *options, "--yes", "--undo-file", str(undo), "-b", cluster.bootstrap]


def _bytes(cluster: CordwoodCluster, topic: str, nodes: Sequence[int]) -> int:
    """Bytes of the segments of a topic, or of all (""), on these nodes. Segments may go while they are counted."""
    total = 0
    for node in nodes:
        for path in segments(cluster.directory / f"node-{node}", topic):
            try:
                total += path.stat().st_size
            except FileNotFoundError:
                continue
    return total


class _Producer:
    """A producer at a steady rate, in slices, until the end of a `with` block: the p99 of each slice."""

    def __init__(self, cluster: CordwoodCluster) -> None:
        self._cluster = cluster
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="producer")
        self._failure: Exception | None = None
        self.p99s_us: list[float] = []

    def one_slice(self) -> None:
        flags: dict[str, Any] = {"rate": RATE_PER_S, "size": SIZE, "seconds": SLICE_S, "partitions": _STEADY_PARTITIONS}
        run = load.start("steady", self._cluster.bootstrap, _STEADY, acks="all", timeout=60, **flags)
        self.p99s_us.append(run.result(70).latency_us("p99"))

    def _run(self) -> None:
        try:
            while not self._stop.is_set():
                self.one_slice()
        except Exception as error:
            self._failure = error

    def __enter__(self) -> _Producer:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()
        if self._failure is not None:
            raise self._failure
