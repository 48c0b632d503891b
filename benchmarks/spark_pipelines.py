"""`python -m benchmarks.spark pipelines`: pipelines beside plain streaming queries that do the same.

Each run is a process of its own, cold, as a user starts it: `cordwood pipeline run --once`, or a script with a query.
A ratio is the pipeline's figure divided by the plain query's: for times, less is better. What a case is compared with
is in its name.
"""

from __future__ import annotations

import json
import shlex
import shutil
import statistics
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path

from confluent_kafka import Producer
from rich.console import Console
from rich.markup import escape

from benchmarks import report
from benchmarks.figures import CORDWOOD, KAFKA, Figure, Metric, Target
from benchmarks.machine import facts
from benchmarks.maven import PEERS, PeerUnavailable
from benchmarks.spark_connector import install_connector
from benchmarks.spark_plain_query import SCHEMA
from benchmarks.spark_runs import RunFailed, Timeline, run_timed
from benchmarks.systems import CordwoodSystem, create_topics

TOPIC = Target(1.3, at_least=False)
FIRST_BATCH = Target(8.0, at_least=False, of_own_value=True)
TINY_BATCH = Target(1.0, at_least=False, of_own_value=True)
PARTITIONS = 4
RESULTS = Path(__file__).resolve().parent / "results"

PIPELINE = """
from cordwood.pipelines import *
from pyspark.sql import functions as F

@pipeline("bench", version=1, inputs=topic("{read}", value=json("{schema}")), outputs={output},
          max_rows_per_batch={batch_rows})
def bench(orders):
    return orders.where("amount >= 0").withColumn("with_tax", F.col("amount") * 1.19)
"""


@dataclass(frozen=True)
class Scale:
    """How much is read, and how often."""

    rounds: int
    batch_rows: int
    batches: int
    cold: int
    """Batches at the beginning of a run that count for nothing but the time to the first: the JVM compiles in them."""
    tiny_batches: int
    seeded_rows: int
    """In a table that is large before the first batch."""

    @property
    def rows(self) -> int:
        return self.batch_rows * self.batches


FULL = Scale(rounds=3, batch_rows=500_000, batches=6, cold=2, tiny_batches=25, seeded_rows=10_000_000)
QUICK = Scale(rounds=1, batch_rows=100_000, batches=6, cold=2, tiny_batches=15, seeded_rows=1_000_000)


@dataclass
class Bench:
    """What the scenarios share: a broker, topics to read, and runs of pipelines and queries."""

    broker: CordwoodSystem
    scale: Scale
    console: Console
    directory: Path
    figures: list[Figure] = field(default_factory=list)
    began: float = field(default_factory=time.monotonic)
    filled: dict[int, str] = field(default_factory=dict)

    def say(self, text: str) -> None:
        self.console.print(f"[dim]{time.monotonic() - self.began:5.0f} s[/]  {escape(text)}")

    def topic(self, partitions: int = PARTITIONS) -> str:
        name = f"bench-{uuid.uuid4().hex[:8]}"
        create_topics(self.broker, [name], partitions, self.broker.topic_settings("os"))
        return name

    def orders(self, rows: int, partitions: int = PARTITIONS) -> str:
        """A topic with so many orders of about 60 bytes, made once."""
        if rows not in self.filled:
            name = self.topic(partitions)
            self.produce_orders(name, range(rows))
            self.filled[rows] = name
        return self.filled[rows]

    def produce_orders(self, topic: str, numbers: Iterable[int]) -> None:
        """Writes the orders with these numbers."""
        producer = Producer(
            {"bootstrap.servers": self.broker.bootstrap, "linger.ms": 20, "queue.buffering.max.messages": 1_000_000}
        )
        for number in numbers:
            order = {"id": f"o{number}", "customer": f"c{number % 1000}", "amount": number / 100, "placed": number}
            while True:
                try:
                    producer.produce(topic, json.dumps(order, separators=(",", ":")), f"o{number}")
                    break
                except BufferError:
                    producer.poll(0.1)
        producer.flush()

    def pipeline(self, read: str, output: str, batch_rows: int, *, content: str = PIPELINE) -> Timeline:
        """`output` is the declaration of the pipeline's output, as in its file."""
        place = Path(tempfile.mkdtemp(prefix="pipeline-", dir=self.directory))
        file = place / "bench.py"
        file.write_text(content.format(read=read, schema=SCHEMA, output=output, batch_rows=batch_rows))
        command = [str(Path(sys.executable).with_name("cordwood")), "pipeline", "run", str(file), "--once"]
        command += ["--max-restarts", "0", "-d", str(place / "pipelines"), "-b", self.broker.bootstrap]
        return run_timed(command, place / "pipelines", place / "output", {})

    def query(self, format_: str, read: str, batch_rows: int, jars: Sequence[Path]) -> Timeline:
        place = Path(tempfile.mkdtemp(prefix="query-", dir=self.directory))
        command = [sys.executable, "-m", "benchmarks.spark_plain_query", format_, self.broker.bootstrap, read]
        command += [
            self.topic(),
            str(place / "checkpoint"),
            str(batch_rows),
            *([",".join(map(str, jars))] if jars else []),
        ]
        return run_timed(command, place, place / "output", {})

    def beside(
        self, scenario: str, cases: Sequence[Case], ours: Callable[[], Timeline], measures: Sequence[Measure]
    ) -> None:
        """Runs ours and every peer in turn, and adds a figure for each case and measure."""
        figures = {case.name: [Figure(scenario, case.name, each.metric) for each in measures] for case in cases}
        self.figures += [figure for of_case in figures.values() for figure in of_case]
        # One run of ours stands in all cases.
        runs = [
            ("ours", CORDWOOD, list(figures), ours),
            *((case.name, KAFKA, [case.name], case.peer) for case in cases),
        ]
        for number in range(self.scale.rounds):
            for name, system, shown_in, run in runs if number % 2 else reversed(runs):
                wanted = [figures[case] for case in shown_in]
                try:
                    timeline = run()
                except (RunFailed, PeerUnavailable) as failure:
                    for figure in (figure for of_case in wanted for figure in of_case):
                        figure.failures[system] = str(failure)[:3000]
                    continue
                told = [each.of(timeline) for each in measures]
                for of_case in wanted:
                    for figure, value in zip(of_case, told, strict=True):
                        figure.add(system, value)
                words = [
                    f"{each.metric.name} {report.in_words(value, each.metric.unit)}"
                    for each, value in zip(measures, told, strict=True)
                ]
                self.say(f"{scenario} · {name}: {', '.join(words)}")


@dataclass(frozen=True)
class Case:
    """What the pipeline is compared with."""

    name: str
    peer: Callable[[], Timeline]


@dataclass(frozen=True)
class Measure:
    metric: Metric
    of: Callable[[Timeline], float]


def measures_of(scale: Scale, target: Target, first: Target | None = FIRST_BATCH) -> list[Measure]:
    """Of runs over `scale.rows` records: what a scenario with large batches tells."""

    def warm_s(timeline: Timeline) -> float:
        return statistics.median(timeline.warm_s(scale.cold))

    rows = scale.batch_rows * (scale.batches - scale.cold) / 1e6
    return [
        Measure(Metric("warm batch", "s", target), warm_s),
        Measure(Metric("rows/s", "/s"), lambda timeline: scale.batch_rows / warm_s(timeline)),
        Measure(Metric("CPU per million rows", "s"), lambda timeline: timeline.warm_cpu_s(scale.cold) / rows),
        Measure(Metric("first batch done after", "s", first), lambda timeline: timeline.batches_s[0]),
        Measure(Metric("from start to end", "s"), lambda timeline: timeline.ended_s),
    ]


# Scenarios


def to_topic(bench: Bench) -> None:
    """JSON orders through a filter and a column into a topic, in large batches."""
    read, scale = bench.orders(bench.scale.rows), bench.scale
    bench.beside(
        "topic",
        _plain_queries(bench, read, scale.batch_rows),
        lambda: bench.pipeline(read, _topic_output(bench), scale.batch_rows),
        measures_of(scale, TOPIC),
    )


def tiny(bench: Bench) -> None:
    """Batches of one record, one after the other."""
    # Of each partition with records a batch has one at least.
    read, cold = bench.orders(bench.scale.tiny_batches, partitions=1), 5

    def of_one(timeline: Timeline) -> float:
        return statistics.median(timeline.warm_s(cold))

    bench.beside(
        "tiny",
        _plain_queries(bench, read, 1),
        lambda: bench.pipeline(read, _topic_output(bench), 1),
        [
            Measure(Metric("batch of one record", "s", TINY_BATCH), of_one),
            Measure(Metric("first batch done after", "s", FIRST_BATCH), lambda timeline: timeline.batches_s[0]),
        ],
    )


def _topic_output(bench: Bench) -> str:
    return f'topic("{bench.topic()}", key="id")'


def _plain_queries(bench: Bench, read: str, batch_rows: int) -> list[Case]:
    def with_the_connector() -> Timeline:
        _, jars = install_connector()
        return bench.query("kafka", read, batch_rows, jars)

    return [
        Case("our source and sink", lambda: bench.query("cordwood", read, batch_rows, ())),
        Case("Spark's connector, at least once", with_the_connector),
    ]


SCENARIOS: dict[str, tuple[str, Callable[[Bench], None]]] = {
    "topic": ("Pipeline to a topic", to_topic),
    "tiny": ("Pipeline to a topic, one record at a time", tiny),
}


def main(
    names: Sequence[str], *, quick: bool, rounds: int | None, batch_rows: int | None = None, batches: int | None = None
) -> int:
    from benchmarks import spark_history, spark_tables  # which build on this module

    scenarios = {**SCENARIOS, **spark_tables.SCENARIOS, **spark_history.SCENARIOS}
    if unknown := set(names) - set(scenarios):
        print(f"no such scenario: {', '.join(sorted(unknown))}; there are {', '.join(scenarios)}", file=sys.stderr)
        return 2
    console = Console(width=None if sys.stdout.isatty() else 150, highlight=False)
    scale = QUICK if quick else FULL
    if rounds:
        scale = replace(scale, rounds=rounds)
    if batch_rows:
        scale = replace(scale, batch_rows=batch_rows)
    if batches:
        # Of a longer run the first half is cold: the JVM goes on compiling for half a minute.
        scale = replace(scale, batches=batches, cold=max(scale.cold, batches // 2))
    began = datetime.now().astimezone()
    PEERS.mkdir(parents=True, exist_ok=True)
    directory = Path(tempfile.mkdtemp(prefix="pipelines-", dir=PEERS))
    known = {**facts(directory, None), "rounds": scale.rounds, "rows": scale.rows, "rows per batch": scale.batch_rows}
    broker = CordwoodSystem(directory / "broker")
    broker.start()
    bench = Bench(broker, scale, console, directory)
    command = shlex.join(["python", "-m", "benchmarks.spark", *sys.argv[1:]])
    console.print(f"[bold]{escape(command)}[/]")
    for name, value in known.items():
        console.print(f"  {name:22} {escape(str(value))}")
    labels = {CORDWOOD: "pipeline", KAFKA: "plain query"}
    try:
        for name, (title, scenario) in scenarios.items():
            if not names or name in names:
                scenario(bench)
                own = [figure for figure in bench.figures if figure.scenario == name]
                report.print_scenario(console, title, own, labels, f"python -m benchmarks.spark pipelines {name}")
    finally:
        broker.stop()
        shutil.rmtree(directory, ignore_errors=True)
    report.print_targets(console, bench.figures)
    path = RESULTS / f"spark-pipelines-{began:%Y-%m-%d-%H%M%S}.json"
    report.write_json(path, began=began, command=command, facts=known, figures=bench.figures, notes=[])
    console.print(f"results in {path}")
    return 1 if any(figure.failures for figure in bench.figures) else 0
