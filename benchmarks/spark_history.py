"""Scenarios of `python -m benchmarks.spark pipelines`: history that is read again, beside others who use the brokers.

`producer`: a steady producer alone, beside a replay at full speed, and beside one with a limit of rows a second. Its
ratios are p99 beside the replay by p99 alone: they say what the replay costs others on the same machine, Spark's own
CPU included. `brokers`: one topic read whole by Spark, from one broker and from three, which says where the limit is.
"""

from __future__ import annotations

import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks import load
from benchmarks.cluster.clusters import CordwoodCluster
from benchmarks.figures import CORDWOOD, Figure, Metric, Target
from benchmarks.processes import cpu_seconds
from benchmarks.spark_pipelines import PARTITIONS, PIPELINE, Bench
from benchmarks.spark_plain_query import SCHEMA
from benchmarks.systems import create_topics

AT_FULL_SPEED = Target(2.0, at_least=False, of_own_value=True)
WITH_A_LIMIT = Target(1.3, at_least=False, of_own_value=True)
RATE_PER_S, SIZE, SLICE_S = 500, 1024, 3
LIMIT_ROWS_PER_S = 20_000
_START_S = 300
_READ_SIZE = 1024


def producer(bench: Bench) -> None:
    """A steady producer beside replays of the same broker's history."""
    read, steady = bench.orders(bench.scale.rows), bench.topic()
    place = Path(tempfile.mkdtemp(prefix="history-", dir=bench.directory))
    file = place / "bench.py"
    output = f'topic("{bench.topic()}", key="id")'
    file.write_text(PIPELINE.format(read=read, schema=SCHEMA, output=output, batch_rows=bench.scale.batch_rows))
    at = ["-d", str(place / "pipelines"), "-b", bench.broker.bootstrap]
    tool = [str(Path(sys.executable).with_name("cordwood")), "pipeline"]
    subprocess.run([*tool, "run", str(file), "--once", *at], check=True, stdout=subprocess.DEVNULL)

    def p99_us() -> float:
        flags: dict[str, Any] = {"rate": RATE_PER_S, "size": SIZE, "seconds": SLICE_S, "partitions": PARTITIONS}
        run = load.start("steady", bench.broker.bootstrap, steady, acks="all", timeout=60, **flags)
        return run.result(70).latency_us("p99")

    def beside(options: list[str]) -> float:
        command = [*tool, "replay", str(file), "--fresh", *options, *at]
        with _under_way(command, place) as goes_on:
            found: list[float] = []
            while len(found) < 5:
                p99 = p99_us()
                if not goes_on():
                    break
                found.append(p99)
        if not found:
            raise RuntimeError("the replay ended within the first slice of the producer: it needs more records")
        return statistics.median(found)

    alone_us = statistics.median(p99_us() for _ in range(5))
    bench.say(f"producer · alone: p99 {alone_us:,.0f} us")
    cases: dict[str, tuple[list[str], Target]] = {
        "a replay at full speed": ([], AT_FULL_SPEED),
        f"a replay of {LIMIT_ROWS_PER_S:,} rows/s": (["--rows-per-second", str(LIMIT_ROWS_PER_S)], WITH_A_LIMIT),
    }
    for case, (options, target) in cases.items():
        ratio = Figure("producer", case, Metric("p99 beside it, by p99 alone", "", target))
        bench.figures.append(ratio)
        for _ in range(bench.scale.rounds):
            p99 = beside(options)
            ratio.add(CORDWOOD, p99 / alone_us)
            bench.say(f"producer · {case}: p99 {p99:,.0f} us")


@contextmanager
def _under_way(command: list[str], directory: Path) -> Iterator[Callable[[], bool]]:
    """Runs a replay; the block begins when its first batch is done. Yields whether it goes on."""
    before = set(directory.glob("pipelines/**/commits/*"))
    with (directory / "output").open("ab") as output:
        process = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT, start_new_session=True)
    try:
        ends_s = time.monotonic() + _START_S
        while process.poll() is None and set(directory.glob("pipelines/**/commits/*")) <= before:
            if time.monotonic() > ends_s:
                raise RuntimeError(f"no batch within {_START_S} s: {' '.join(command)}")
            time.sleep(0.1)
        yield lambda: process.poll() is None
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def brokers(bench: Bench) -> None:
    """A batch read of a whole topic into nothing, from one broker and from three."""
    import cordwood.spark

    total = 2_000_000_000 if bench.scale.rounds > 1 else 500_000_000
    settings: dict[str, Any] = {"spark.ui.enabled": False, "spark.driver.memory": "3g"}
    spark = cordwood.spark.session("history", "local[*]", **settings)
    spark.sparkContext.setLogLevel("ERROR")

    def measured(case: str, bootstrap: str, topic: str, broker_pids: list[int]) -> None:
        flags: dict[str, Any] = {"size": _READ_SIZE, "partitions": 12, "messages": total // _READ_SIZE}
        properties = {"linger.ms": "20", "compression.codec": "none"}
        load.start("produce", bootstrap, topic, properties=properties, timeout=600, **flags).result(610)
        metrics = (Metric("MB/s", "MB/s"), Metric("CPU of Spark per GB", "s"), Metric("CPU of the brokers per GB", "s"))
        figures = [Figure("brokers", case, metric) for metric in metrics]
        bench.figures += figures
        for number in range(bench.scale.rounds + 1):
            spark_s, brokers_s, began = cpu_seconds(os.getpid()), sum(map(cpu_seconds, broker_pids)), time.monotonic()
            frame = spark.read.format("cordwood").option("kafka.bootstrap.servers", bootstrap)
            frame.option("subscribe", topic).load().write.format("noop").mode("overwrite").save()
            took_s, of_brokers_s = time.monotonic() - began, sum(map(cpu_seconds, broker_pids)) - brokers_s
            of_spark_s = cpu_seconds(os.getpid()) - spark_s - of_brokers_s
            if number:  # The first round warms up.
                for figure, value in zip(figures, (total / took_s / 1e6, of_spark_s, of_brokers_s), strict=True):
                    figure.add(CORDWOOD, value if figure is figures[0] else value / total * 1e9)
                bench.say(f"brokers · {case}: {total / took_s / 1e6:,.0f} MB/s")

    try:
        name = f"read-{os.getpid()}"
        create_topics(bench.broker, [name], 12, bench.broker.topic_settings("os"))
        measured("from one broker", bench.broker.bootstrap, name, list(bench.broker.pids))
        cluster = CordwoodCluster(bench.directory / "three")
        cluster.start()
        try:
            create_topics(cluster, [name], 12, cluster.topic_settings("os"))
            measured("from three brokers", cluster.bootstrap, name, list(cluster.processes_by_kind()["brokers"]))
        finally:
            cluster.stop()
    finally:
        spark.stop()


SCENARIOS: dict[str, tuple[str, Callable[[Bench], None]]] = {
    "producer": ("A producer beside a replay", producer),
    "brokers": ("A topic read whole, from one broker and from three", brokers),
}
