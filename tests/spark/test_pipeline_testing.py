"""What users test their pipelines with: a function with rows as dicts, and a whole pipeline batch by batch."""

from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from cordwood.pipelines import Pipeline, budget, expect, guarded, json, parsed_by, pipeline, table, text, topic
from cordwood.pipelines.definition.errors import OverBudget, RuleBroken
from cordwood.pipelines.testing import GivenRow, PipelineTest, record, run_function, tombstone


@pytest.fixture(scope="session")
def cordwood_spark(spark: SparkSession) -> Iterator[SparkSession]:
    """The Spark of these tests, in the place of the plugin's."""
    return spark  # type: ignore[return-value]


@guarded("total double")
def priced(row: Mapping[str, Any]) -> Mapping[str, Any]:
    if row["amount"] == 13:
        raise ValueError("unlucky")
    return {"total": None if row["amount"] is None else round(row["amount"] * 1.19, 2)}


@pipeline(
    version=1,
    inputs=topic(
        "orders",
        value=json("id string not null, amount double, at timestamp, price decimal(9,2)"),
        expect=expect("amount >= 0", else_="quarantine", name="positive"),
    ),
    outputs={
        "priced": topic("orders.priced", key="id", expect=expect("total < 1000", else_="fail")),
        "orders": table("orders", key="id", expect=expect("total <> 0", else_="drop")),
    },
    quarantine=budget(rows=2),
)
def price_orders(orders: Any) -> Any:
    rows = priced(orders).select("id", "total", "at", "price", "_record")
    return {"priced": rows, "orders": rows.select("id", "total", "_record")}


def test_a_function_runs_on_dicts_as_in_a_batch(spark: SparkSession) -> None:
    at = datetime(2026, 3, 1, 12, tzinfo=UTC)
    rows: list[GivenRow] = [
        {"id": "o1", "amount": 10, "at": at, "price": Decimal("1.50")},
        {"id": "o2", "amount": -1.0},
        {"id": "o3", "amount": 0.0},
        {"id": "o4", "amount": 13.0},
        {"amount": 1.0},
        b"nonsense",
        tombstone("o1"),
        record({"id": "o5", "amount": 1.0}, key="o5", partition=3),
    ]
    found = run_function(price_orders, spark, orders=rows)
    assert sorted(found["orders"], key=str) == [{"id": "o1", "total": 11.9}, {"id": "o5", "total": 1.19}]
    assert sorted(row["id"] for row in found["priced"]) == ["o1", "o3", "o5"]
    first = next(row for row in found["priced"] if row["id"] == "o1")
    assert (first["at"].astimezone(UTC), first["price"]) == (at, Decimal("1.50"))
    assert found.tombstones == {"priced": [b"o1"], "orders": [b"o1"]}
    assert found.rules == {"positive": {"quarantined": 1}, "total <> 0": {"dropped": 1}}
    assert [(each.origin.offset, each.rule) for each in found.quarantined] == [
        (1, "positive"),
        (3, None),
        (4, None),
        (5, None),
    ]
    assert found.quarantined[1].error == "ValueError: unlucky"
    assert found.quarantined[3].value == b"nonsense"
    with pytest.raises(RuleBroken, match="orders/0@0"):
        run_function(price_orders, spark, orders=[{"id": "o1", "amount": 1000.0}])
    with pytest.raises(TypeError, match="price-orders has no input order: it has orders"):
        run_function(price_orders, spark, order=[])


@pipeline(
    version=1,
    inputs={
        "names": topic("names", key=text(), value=text()),
        "visits": topic("visits", value=parsed_by(lambda value: {"who": value.decode(), "n": 1}, "who string, n int")),
    },
    outputs=table("visited"),
)
def visited(names: Any, visits: Any) -> Any:
    return visits.join(names, F.col("who") == F.col("key")).select("value", "n")


def test_inputs_of_all_formats_take_dicts_and_bytes(spark: SparkSession) -> None:
    names: list[GivenRow] = [{"key": "a", "value": "Ann"}, record("Bob", key="b")]
    by_dicts = run_function(visited, spark, names=names, visits=[{"who": "a", "n": 7}])
    assert by_dicts == {"visited": [{"value": "Ann", "n": 7}]}
    by_bytes = run_function(visited, spark, names=names, visits=[b"b"])
    assert by_bytes == {"visited": [{"value": "Bob", "n": 1}]}
    assert run_function(visited, spark, names=names) == {"visited": []}
    with pytest.raises(TypeError, match="input names has one column, value, and no name"):
        run_function(visited, spark, names=[{"name": "Ann"}])


def test_a_whole_pipeline_runs_batch_by_batch(pipeline_test: Callable[[Pipeline], PipelineTest]) -> None:
    orders = pipeline_test(price_orders)
    assert orders.run_batch().rows_in == 0
    orders.produce("orders", {"id": "o1", "amount": 10.0}, {"id": "o2", "amount": 20.0}, {"id": "o3", "amount": -3.0})
    batch = orders.run_batch()
    assert (batch.rows_in, batch.rows_out, batch.quarantined) == (3, {"priced": 2, "orders": 2}, 1)
    assert batch.rules == {"positive": {"quarantined": 1}}
    assert sorted(orders.rows("orders"), key=str) == [{"id": "o1", "total": 11.9}, {"id": "o2", "total": 23.8}]
    assert sorted(row["total"] for row in orders.rows("priced")) == [11.9, 23.8]
    ((aside),) = orders.quarantined()
    assert (aside.rule, aside.value) == ("positive", b'{"id": "o3", "amount": -3.0}')

    orders.produce("orders", {"id": "o2", "amount": 30.0}, tombstone("o1"))
    assert orders.run_batch().rows_in == 2
    assert orders.rows("orders") == [{"id": "o2", "total": 35.7}]
    assert (b"o1", None) in orders.records("priced")

    orders.produce("orders", b"x", b"y", b"z")
    for _ in range(2):
        with pytest.raises(OverBudget, match="3 poison records among the 3 of batch 2"):
            orders.run_batch()
    assert len(orders.quarantined()) == 1
    with pytest.raises(KeyError, match="has no input order"):
        orders.produce("order", {})


@pipeline(
    version=1,
    stateful=True,
    output_mode="update",
    inputs=topic("payments", value=json("who string, amount double"), expect=expect("amount > 0", else_="drop")),
    outputs=table("balances", key="who"),
)
def balances(payments: Any) -> Any:
    return payments.groupBy("who").agg(F.sum("amount").alias("balance"))


def test_a_stateful_pipeline_keeps_its_state_between_batches(
    pipeline_test: Callable[[Pipeline], PipelineTest],
) -> None:
    payments = pipeline_test(balances)
    payments.produce("payments", {"who": "a", "amount": 1.0}, {"who": "b", "amount": 2.0})
    payments.run_batch()
    payments.produce("payments", {"who": "a", "amount": 5.0}, {"who": "b", "amount": -5.0})
    batch = payments.run_batch()
    assert (batch.rows_in, batch.rules) == (2, {"amount > 0": {"dropped": 1}})
    assert sorted(payments.rows("balances"), key=str) == [{"who": "a", "balance": 6.0}, {"who": "b", "balance": 2.0}]
