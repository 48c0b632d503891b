"""Chained pipelines on Spark: a reader follows swaps and rollbacks of what it reads, in whatever run."""

import json
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from tests.conftest import MakeTopic, RunningBroker
from tests.deadline import eventually
from tests.spark.conftest import Load, Produce
from tests.spark.pipeline_workshop import Workshop, orders

from cordwood.pipelines import start
from cordwood.pipelines.definition.loading import load_pipeline
from cordwood.pipelines.editions.checkpoint import committed_position
from cordwood.pipelines.editions.swapping import rollback, swap
from cordwood.pipelines.execution.reading_here import log_ends

WRITER = """
@pipeline("{name}", version={version}, inputs=topic("{topic}", value=json("id string, amount int")),
          outputs=topic("{name}.priced", key="id"), max_rows_per_batch=3)
def priced(orders):
    return orders.selectExpr("id", "amount", "amount * {version} as total", "_record")
"""
READER = """
@pipeline("{name}-report", version=1, {more}
          inputs=output("{name}", "{name}.priced", value=json("id string, amount int, total int")),
          outputs=topic("{name}.reports", key="id"))
def report(priced):
    return priced.selectExpr("id", "amount", "total", "_record")
"""
STATEFUL = """
@pipeline("{name}-report", version=1, stateful=True, output_mode="update",
          inputs=output("{name}", "{name}.priced", value=json("id string, amount int, total int")),
          outputs=table("{name}-sums", key="parity"))
def report(priced):
    parity = (F.col("amount") % 2).alias("parity")
    return priced.groupBy(parity).agg(F.count("*").alias("n"), F.sum("amount").alias("sum"))
"""
READING = {"startingOffsets": "earliest", "kafka.isolation.level": "read_committed"}


class Chain:
    """A writer and a reader of its output, in one project."""

    def __init__(self, directory: Path, spark: SparkSession, bootstrap: str, topic: str) -> None:
        self.topic, self.name = topic, f"p-{topic[-6:]}"
        (directory / "writer").mkdir()
        (directory / "reader").mkdir()
        self.writer = Workshop(directory / "writer", spark, bootstrap)
        self.reader = Workshop(directory / "reader", spark, bootstrap)
        self.reader.project = self.writer.project
        self.state = self.writer.project.state(self.name)

    def version(self, number: int) -> None:
        self.writer.write(WRITER.format(name=self.name, topic=self.topic, version=number))

    def read_with(self, text: str, more: str = "") -> None:
        self.reader.write(text.format(name=self.name, more=more))

    def swap(self) -> None:
        swap(self.state, None, force=False, skip_effects=False, timeout_s=10)

    def rollback(self) -> None:
        rollback(self.state, timeout_s=10)


@pytest.fixture
def chain(tmp_path: Path, spark: SparkSession, broker: RunningBroker, make_topic: MakeTopic) -> Chain:
    return Chain(tmp_path, spark, broker.bootstrap, make_topic(2))


@pytest.fixture
def reports(chain: Chain, load: Load) -> Callable[[], list[tuple[int, int]]]:
    def read() -> list[tuple[int, int]]:
        values = [json.loads(bytes(row["value"])) for row in load(f"{chain.name}.reports", **READING).collect()]
        return sorted((value["amount"], value["total"] // value["amount"]) for value in values)

    return read


def test_runs_that_end_go_over_with_the_next_run(
    chain: Chain, put: Produce, reports: Callable[[], list[tuple[int, int]]]
) -> None:
    chain.version(1)
    chain.read_with(READER)
    put(chain.topic, [*orders(range(1, 5)), *orders(range(5, 8), partition=1)])
    chain.writer.run()
    chain.reader.run()
    chain.version(2)
    chain.writer.replay()
    put(chain.topic, orders([8]))
    chain.version(1)
    chain.writer.run()
    chain.swap()
    put(chain.topic, orders([9], partition=1))
    chain.version(2)
    chain.writer.run()
    assert chain.reader.run()
    assert reports() == [*((number, 1) for number in range(1, 9)), (9, 2)]

    chain.rollback()
    put(chain.topic, orders([10]))
    assert chain.reader.run() == [], "the reader waits for the edition that is live again"
    chain.version(1)
    chain.writer.run()
    assert chain.reader.run()
    assert reports() == [*((number, 1) for number in range(1, 9)), (9, 2), (10, 1)]
    assert chain.reader.run() == []


def test_a_run_that_goes_on_goes_over_by_itself(
    chain: Chain, put: Produce, spark: SparkSession, reports: Callable[[], list[tuple[int, int]]]
) -> None:
    chain.version(1)
    chain.read_with(READER, more='trigger="100 milliseconds",')
    put(chain.topic, orders(range(1, 4)))
    chain.writer.run()
    told: list[str] = []
    running = start(
        load_pipeline(chain.reader.file),
        spark,
        bootstrap_servers=chain.reader.bootstrap,
        directory=chain.reader.project.directory,
        tell=lambda event: told.append(event["event"]),
    )
    chain.version(2)
    chain.writer.replay()
    chain.swap()
    put(chain.topic, orders([4]))
    chain.writer.run()
    state = chain.reader.project.state(f"{chain.name}-report")
    waiting = threading.Thread(target=running.wait, daemon=True)
    waiting.start()
    checkpoint = state.checkpoint("v1")
    try:
        eventually(
            lambda: committed_position(checkpoint),
            to_be=log_ends(chain.reader.brokers, [f"{chain.name}.priced.v2"]),
        )
    finally:
        running.stop()
        waiting.join(60)
    assert not waiting.is_alive()
    assert reports() == [(1, 1), (2, 1), (3, 1), (4, 2)]
    assert told.count("started") == told.count("ended") == 1


def test_the_state_of_a_reader_goes_over_with_it(chain: Chain, put: Produce) -> None:
    chain.version(1)
    chain.read_with(STATEFUL)
    put(chain.topic, orders(range(1, 5)))
    chain.writer.run()
    chain.reader.run()
    chain.version(2)
    chain.writer.replay()
    chain.swap()
    put(chain.topic, orders([5, 6]))
    chain.writer.run()
    chain.reader.run()
    assert chain.reader.rows(f"{chain.name}-sums") == [(0, 3, 12), (1, 3, 9)]
