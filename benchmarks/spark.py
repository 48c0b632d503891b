"""`python -m benchmarks.spark`: our Spark source and sink beside Spark's own Kafka connector.

One Spark (local, all cores) and one Cordwood broker; both formats read the same topics and write to topics alike, in
turn, the order changing each round. A ratio is ours divided by the connector's. CPU is that of Spark: driver, JVM and
Python workers, without the broker's.
"""

from __future__ import annotations

import argparse
import os
import shlex
import shutil
import statistics
import sys
import tempfile
import threading
import time
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from rich.console import Console
from rich.markup import escape

import cordwood.spark
from benchmarks import load, report, spark_history, spark_pipelines, spark_start, spark_tables
from benchmarks.figures import CORDWOOD, KAFKA, Figure, Metric, Target
from benchmarks.machine import cores, facts
from benchmarks.maven import PEERS, PeerUnavailable
from benchmarks.processes import cpu_seconds, peak_rss_bytes, tree
from benchmarks.spark_connector import install_connector
from benchmarks.systems import CordwoodSystem, create_topics

SOURCE = Target(2.0, at_least=True)
SINK = Target(1.0, at_least=True)
TRIGGER_FLOOR = Target(150, at_least=False, of_own_value=True)

FORMATS = {CORDWOOD: "cordwood", KAFKA: "kafka"}
RESULTS = Path(__file__).resolve().parent / "results"


@dataclass(frozen=True)
class Plan:
    rounds: int
    read_bytes: int
    """Of one topic that is read."""
    written_bytes: int
    codecs: Sequence[str]
    partitions: Sequence[int]
    triggers: int


FULL = Plan(3, 400_000_000, 200_000_000, ("none", "lz4", "zstd"), (1, 100), 30)
QUICK = Plan(1, 150_000_000, 60_000_000, ("none", "lz4"), (1, 100), 10)
SIZES = (100, 1024)


@dataclass
class Run:
    """What the scenarios share."""

    spark: SparkSession
    broker: CordwoodSystem
    plan: Plan
    names: Sequence[str]
    console: Console
    directory: Path
    figures: list[Figure] = field(default_factory=list)
    began: float = field(default_factory=time.monotonic)
    jars: str = ""
    topics: dict[tuple[int, str, int], str] = field(default_factory=dict)

    def say(self, text: str) -> None:
        self.console.print(f"[dim]{time.monotonic() - self.began:5.0f} s[/]  {escape(text)}")

    def topic(self, partitions: int) -> str:
        name = f"bench-{uuid.uuid4().hex[:8]}"
        create_topics(self.broker, [name], partitions, self.broker.topic_settings("os"))
        return name

    def filled(self, size: int, codec: str, partitions: int) -> str:
        """A topic to read, made once."""
        wanted = (size, codec, partitions)
        if wanted not in self.topics:
            name = self.topic(partitions)
            flags: dict[str, Any] = {"size": size, "partitions": partitions, "messages": self.rows(size)}
            properties = {"linger.ms": "20", "compression.codec": codec}
            load.start("produce", self.broker.bootstrap, name, properties=properties, timeout=600, **flags).result(610)
            self.topics[wanted] = name
        return self.topics[wanted]

    def rows(self, size: int) -> int:
        return self.plan.read_bytes // size

    def alternate(
        self, scenario: str, case: str, metrics: Sequence[Metric], measure: Callable[[str], Sequence[float]]
    ) -> None:
        figures = [Figure(scenario, case, metric) for metric in metrics]
        self.figures.extend(figures)
        for number in range(self.plan.rounds + 1):
            # The first round warms up the JVM and the workers, and does not count.
            for name in self.names if number % 2 else list(reversed(self.names)):
                try:
                    values = measure(name)
                except Exception as error:
                    for figure in figures:
                        figure.failures[name] = f"{type(error).__name__}: {str(error)[:500]}"
                    continue
                if number:
                    for figure, value in zip(figures, values, strict=True):
                        figure.add(name, value)
                    self.say(f"{scenario}: {case} · {name}: {report.in_words(values[0], metrics[0].unit)}")

    def reader(self, reader: Any, name: str, topic: str) -> Any:
        reader = reader.format(FORMATS[name]).option("kafka.bootstrap.servers", self.broker.bootstrap)
        return reader.option("subscribe", topic).option("startingOffsets", "earliest")

    def cpu_s(self) -> float:
        return cpu_seconds(os.getpid()) - cpu_seconds(self.broker.pid)


# Scenarios


def read(run: Run) -> None:
    """Reads a whole topic into a sink that drops it."""
    for size in SIZES:
        for codec in run.plan.codecs:
            for partitions in run.plan.partitions:
                topic = run.filled(size, codec, partitions)

                def measure(name: str, topic: str = topic, size: int = size) -> list[float]:
                    frame = run.reader(run.spark.read, name, topic).load()
                    took_s, cpu_s = _timed(run, lambda: frame.write.format("noop").mode("overwrite").save())
                    return [run.rows(size) / took_s, cpu_s / run.rows(size) * 1e6]

                metrics = (Metric("rows/s", "/s", SOURCE), Metric("CPU per million rows", "s"))
                run.alternate("read", _case(size, codec, partitions), metrics, measure)


def stream(run: Run) -> None:
    """All of a topic by a query with trigger(availableNow): what its micro-batches make, and the query as a whole.

    A query that runs for days starts once; one that runs for a second is mostly its start.
    """
    for size in SIZES:
        for partitions in run.plan.partitions:
            topic = run.filled(size, "lz4", partitions)

            def measure(name: str, topic: str = topic, size: int = size) -> list[float]:
                frame = run.reader(run.spark.readStream, name, topic).load()
                batches_s: list[float] = []
                took_s, cpu_s = _timed(run, lambda: batches_s.extend(_drain(run, frame)))
                return [run.rows(size) / sum(batches_s), took_s, cpu_s / run.rows(size) * 1e6]

            metrics = (
                Metric("rows/s of its micro-batches", "/s", SOURCE),
                Metric("from start() to its end", "s"),
                Metric("CPU per million rows", "s"),
            )
            run.alternate("stream", _case(size, "lz4", partitions), metrics, measure)


def sink(run: Run) -> None:
    """Rows made by Spark into a topic: ours exactly once, the connector's at least once."""
    for size in SIZES:
        rows = run.plan.written_bytes // size
        frame = run.spark.range(0, rows, numPartitions=cores()).selectExpr(
            "cast(id as string) as key", f"rpad(cast(id as string), {size}, 'x') as value"
        )
        for partitions in run.plan.partitions:

            def measure(name: str, rows: int = rows, partitions: int = partitions, frame: Any = frame) -> list[float]:
                topic = run.topic(partitions)
                writer = frame.write.format(FORMATS[name]).option("kafka.bootstrap.servers", run.broker.bootstrap)
                if name == CORDWOOD:
                    writer = writer.mode("append")
                took_s, cpu_s = _timed(run, lambda: writer.option("topic", topic).save())
                return [rows / took_s, cpu_s / rows * 1e6]

            metrics = (Metric("rows/s", "/s", SINK), Metric("CPU per million rows", "s"))
            run.alternate("sink", _case(size, "none", partitions), metrics, measure)


def trigger(run: Run) -> None:
    """Micro-batches of one record each, as fast as Spark makes them: what is the least that one takes?"""

    def measure(name: str) -> list[float]:
        topic = run.topic(1)
        frame = run.reader(run.spark.readStream, name, topic).load()
        took_ms = _tiny_batches(run, frame, topic)
        return [statistics.median(took_ms)]

    run.alternate("trigger", "one record", (Metric("micro-batch, median", "ms", TRIGGER_FLOOR),), measure)


def start(run: Run) -> None:
    """CPU from a query's start to its first offset, in a Spark for each format."""
    from confluent_kafka import Producer

    topic = run.topic(1)
    producer = Producer({"bootstrap.servers": run.broker.bootstrap})
    producer.produce(topic, b"x")
    producer.flush(60)
    found = spark_start.figures()
    run.figures.extend(found)
    for number in range(run.plan.rounds):
        for name in run.names if number % 2 else list(reversed(run.names)):
            spark_start.measure(name, FORMATS[name], run.broker.bootstrap, topic, run.jars, found)
            run.say(f"start: {name}, round {number + 1}")


def memory(run: Run) -> None:
    """The most memory of a Python worker that reads 1 KiB records; the connector has no such worker."""
    topic = run.filled(1024, "lz4", run.plan.partitions[-1])
    run.reader(run.spark.read, CORDWOOD, topic).load().write.format("noop").mode("overwrite").save()
    workers = [pid for pid in tree(os.getpid()) if _command(pid).endswith("daemon pyspark.worker")]
    # The daemon forks them: each is asked for by itself.
    peaks = [_own_peak_bytes(pid) for pid in workers]
    figure = Figure("memory", "reading 1 KiB records", Metric("RSS of a Python worker, at most", "MB"))
    run.figures.append(figure)
    figure.add(CORDWOOD, max(peaks, default=0) / 1e6)


SCENARIOS: dict[str, tuple[str, Callable[[Run], None]]] = {
    "read": ("Batch read", read),
    "stream": ("Streaming read", stream),
    "sink": ("Batch write", sink),
    "trigger": ("The floor of a trigger", trigger),
    "start": ("From start() to the first offset", start),
    "memory": ("Memory of a worker", memory),
}


# Measuring


def _timed(run: Run, work: Callable[[], object]) -> tuple[float, float]:
    cpu_s, began = run.cpu_s(), time.monotonic()
    work()
    took_s = time.monotonic() - began
    return took_s, run.cpu_s() - cpu_s


def _drain(run: Run, frame: DataFrame) -> list[float]:
    """How long each micro-batch took, as Spark tells it."""
    with tempfile.TemporaryDirectory(dir=run.directory) as checkpoint:
        query = frame.writeStream.format("noop").option("checkpointLocation", checkpoint)
        running = query.trigger(availableNow=True).start()
        running.awaitTermination()
        if running.exception() is not None:
            raise RuntimeError(str(running.exception()))
        return [progress["durationMs"]["triggerExecution"] / 1000 for progress in running.recentProgress]


def _tiny_batches(run: Run, frame: DataFrame, topic: str) -> list[float]:
    """Milliseconds that micro-batches with something in them took, after a few that warm up."""
    from confluent_kafka import Producer

    stopped = threading.Event()

    def produce() -> None:
        producer = Producer({"bootstrap.servers": run.broker.bootstrap, "linger.ms": 0})
        while not stopped.wait(0.02):
            producer.produce(topic, b"x")
            producer.poll(0)
        producer.flush(10)

    with tempfile.TemporaryDirectory(dir=run.directory) as checkpoint:
        running = frame.writeStream.format("noop").option("checkpointLocation", checkpoint).start()
        writer = threading.Thread(target=produce)
        writer.start()
        took: dict[int, float] = {}
        try:
            ends = time.monotonic() + 120
            while len(took) < run.plan.triggers + 5 and time.monotonic() < ends and running.isActive:
                for progress in running.recentProgress:
                    if progress["numInputRows"]:
                        took[progress["batchId"]] = progress["durationMs"]["triggerExecution"]
                time.sleep(0.2)
        finally:
            stopped.set()
            writer.join()
            running.stop()
    return [took[batch_id] for batch_id in sorted(took)][5:]


def _command(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode().strip()
    except OSError:
        return ""


def _own_peak_bytes(pid: int) -> int:
    return peak_rss_bytes(pid) if len(tree(pid)) == 1 else 0


def _case(size: int, codec: str, partitions: int) -> str:
    words = "1 KiB" if size == 1024 else f"{size} B"
    return f"{words}, {codec}, {partitions} partition{'s' if partitions > 1 else ''}"


# The command


def main() -> int:
    parser = argparse.ArgumentParser(
        "python -m benchmarks.spark", description="Our Spark source and sink, and Spark's."
    )
    parser.add_argument("names", nargs="*", metavar="name", help=f"scenarios to run (all): {', '.join(SCENARIOS)}")
    parser.add_argument("--quick", action="store_true", help="less data, one round")
    parser.add_argument("--rounds", type=int, help="rounds per case")
    parser.add_argument("--batch-rows", type=int, help="records in each batch of `pipelines`")
    parser.add_argument("--batches", type=int, help="batches of a run of `pipelines`")
    parser.epilog = "`pipelines`, with names of its own, is run apart from these: " + ", ".join(
        [*spark_pipelines.SCENARIOS, *spark_tables.SCENARIOS, *spark_history.SCENARIOS]
    )
    options = parser.parse_args()
    if options.names[:1] == ["pipelines"]:
        return spark_pipelines.main(
            options.names[1:],
            quick=options.quick,
            rounds=options.rounds,
            batch_rows=options.batch_rows,
            batches=options.batches,
        )
    if unknown := set(options.names) - set(SCENARIOS):
        parser.error(f"no such scenario: {', '.join(sorted(unknown))}; there are {', '.join(SCENARIOS)}")
    console = Console(width=None if sys.stdout.isatty() else 150, highlight=False)
    plan = QUICK if options.quick else FULL
    if options.rounds:
        plan = Plan(options.rounds, plan.read_bytes, plan.written_bytes, plan.codecs, plan.partitions, plan.triggers)
    began = datetime.now().astimezone()
    names, labels = [CORDWOOD], {CORDWOOD: "Cordwood"}
    settings: dict[str, Any] = {"spark.driver.memory": "3g", "spark.ui.enabled": False}
    try:
        version, jars = install_connector()
        names.append(KAFKA)
        labels[KAFKA] = f"Spark's connector {version}"
        settings["spark.jars"] = ",".join(map(str, jars))
    except PeerUnavailable as error:
        console.print(f"[yellow]no peer, no ratios:[/] {escape(str(error))}")
    PEERS.mkdir(parents=True, exist_ok=True)
    directory = Path(tempfile.mkdtemp(prefix="spark-", dir=PEERS))
    broker = CordwoodSystem(directory / "broker")
    broker.start()
    spark = cordwood.spark.session("benchmarks", "local[*]", **settings)
    spark.sparkContext.setLogLevel("ERROR")
    run = Run(spark, broker, plan, names, console, directory, jars=settings.get("spark.jars", ""))
    known = {**facts(directory, None), "spark": spark.version, "rounds": plan.rounds}
    command = shlex.join(["python", "-m", "benchmarks.spark", *sys.argv[1:]])
    console.print(f"[bold]{escape(command)}[/]")
    for name, value in known.items():
        console.print(f"  {name:22} {escape(str(value))}")
    try:
        for name, (title, scenario) in SCENARIOS.items():
            if not options.names or name in options.names:
                scenario(run)
                own = [figure for figure in run.figures if figure.scenario == name]
                report.print_scenario(console, title, own, labels, f"python -m benchmarks.spark {name}")
    finally:
        spark.stop()
        broker.stop()
        shutil.rmtree(directory, ignore_errors=True)
    report.print_targets(console, run.figures)
    path = RESULTS / f"spark-{began:%Y-%m-%d-%H%M%S}.json"
    report.write_json(path, began=began, command=command, facts=known, figures=run.figures, notes=[])
    console.print(f"results in {path}")
    return 1 if any(figure.failures for figure in run.figures) else 0


if __name__ == "__main__":
    sys.exit(main())
