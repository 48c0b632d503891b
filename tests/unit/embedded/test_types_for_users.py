"""The package says that it is typed, so that type checkers of users look into it. The programs of users below are for
mypy, which reads this file in `make lint` and finds no fault in them."""

import sqlite3
from collections.abc import Callable
from importlib.resources import files
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Message

from cordwood.consumer import IdempotentConsumer
from cordwood.embedded import InProcessLog
from cordwood.pipelines import Pipeline, budget, expect, json, pipeline, table, topic
from cordwood.pipelines.testing import PipelineTest, record, run_function, tombstone

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@pytest.mark.parametrize("package", ["cordwood", "pyspark_cordwood"])
def test_the_package_is_marked_as_typed(package: str) -> None:
    assert (files(package) / "py.typed").is_file()


def book(cursor: sqlite3.Cursor, message: Message) -> None:
    cursor.execute("insert into payments values (?)", (message.value(),))


def consume_with_effects(consumer: IdempotentConsumer) -> int:
    return consumer.poll(book)


def fill(log: InProcessLog) -> dict[int, int]:
    """Appends pairs, and triples with headers, and takes places apart."""
    pairs = [("ada", "placed"), ("bob", "paid")]
    triples = [(None, b"shipped", [("trace", b"7")])]
    return dict(log.append_many("orders", pairs) + log.append_many("orders", triples))


@pipeline(
    version=1,
    inputs=topic("orders", value=json("id string, amount double"), expect=expect("amount >= 0", else_="quarantine")),
    outputs={"priced": topic("orders.priced", key="id"), "orders": table("orders", key="id")},
    quarantine=budget(rows=10),
)
def price_orders(orders: "DataFrame") -> "dict[str, DataFrame]":
    priced = orders.selectExpr("id", "amount * 1.19 as total", "_record")
    return {"priced": priced, "orders": priced}


def check_the_function(spark: "SparkSession") -> list[bytes | None]:
    found = run_function(price_orders, spark, orders=[{"id": "o1", "amount": 1.0}, record(b"nonsense", key="o2")])
    assert found["priced"][0]["total"] == 1.19
    return [each.value for each in found.quarantined]


def check_the_whole_pipeline(pipeline_test: Callable[[Pipeline], PipelineTest]) -> int:
    orders = pipeline_test(price_orders)
    orders.produce("orders", {"id": "o1", "amount": 1.0}, tombstone("o1"))
    batch = orders.run_batch()
    return batch.rows_out["priced"] + len(orders.rows("orders")) + len(orders.quarantined())
