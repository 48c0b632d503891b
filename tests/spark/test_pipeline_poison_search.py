"""Records on which Spark's own expressions fail, wherever the function has these: found in few jobs, and set aside."""

import json
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from tests.conftest import MakeTopic, RunningBroker
from tests.spark.conftest import Load, Produce, Record
from tests.spark.pipeline_workshop import Workshop

from cordwood.pipelines.definition.errors import OverBudget

ORDERS = 'json("id string not null, customer string")'
PIPELINE = """
@pipeline("{name}", version=1, quarantine=budget(rows={rows}), outputs={outputs}, inputs={inputs})
def numbered({parameters}):
    return {result}
"""
MOST_JOBS = 60
"""Two for each try, seven tries for each of three records, and the batch itself, which is made three times."""


@pytest.fixture
def workshop(tmp_path: Path, spark: SparkSession, broker: RunningBroker) -> Workshop:
    return Workshop(tmp_path, spark, broker.bootstrap)


def customers(numbers: range, *poison: int) -> list[Record]:
    """A record for each customer; the numbers of some cannot be read as such."""
    found = []
    for number in numbers:
        customer = "test" if number in poison else f"c{number}"
        found.append(Record(json.dumps({"id": f"o{number}", "customer": customer}).encode(), partition=number % 2))
    return found


def numbered(workshop: Workshop, topic: str, result: str, *, outputs: str | None = None, rows: int = 5) -> str:
    name = f"p-{topic[-6:]}"
    inputs = f'topic("{topic}", value={ORDERS})'
    outputs = outputs or f'table("{name}")'
    facts = {"name": name, "rows": rows, "inputs": inputs, "outputs": outputs}
    workshop.write(PIPELINE.format(parameters="orders", result=result, **facts))
    return name


def jobs_of(spark: SparkSession) -> int:
    """The number of the next job."""
    return len(spark.sparkContext.parallelize([1], 1).collect()) + max(
        spark.sparkContext.statusTracker().getJobIdsForGroup(None)
    )


def test_a_record_on_which_a_filter_fails_is_set_aside_and_the_search_is_told(
    workshop: Workshop, make_topic: MakeTopic, put: Produce, load: Load, spark: SparkSession
) -> None:
    """Spark would push the filter below the step that leaves the poison records out."""
    topic = make_topic(2)
    even = "_record.tombstone or cast(substr(customer, 2) as int) % 2 = 0"
    result = f'orders.where("{even}").selectExpr("id", "_record")'
    name = numbered(
        workshop, topic, result, outputs=f'{{"rows": table("p-{topic[-6:]}"), "out": topic("{topic}.out")}}'
    )
    workshop.write(
        workshop.file.read_text().replace(f"return {result}", f'return dict.fromkeys(["rows", "out"], {result})')
    )
    put(topic, [*customers(range(3_000), 77, 1_500, 2_999), Record(b"nonsense")])
    before = jobs_of(spark)
    (event,) = workshop.run()
    assert (event["rows_in"], event["quarantined"]) == (3_001, 4)
    assert event["rows_out"] == {"rows": 1_499, "out": 1_499}
    assert jobs_of(spark) - before < MOST_JOBS
    said = [each["text"] for each in workshop.told if each["event"] == "doing"]
    assert (
        said[0] == "batch 0 failed: looking among 3,001 records for those that the function fails on (1 try, 0 found)"
    )
    assert said[-1] == "batch 0 is made again"
    assert load(f"{name}.quarantine", startingOffsets="earliest").count() == 4
    assert not list(workshop.project.directory.rglob("search.json"))


def test_a_record_on_which_an_aggregation_fails_is_set_aside(
    workshop: Workshop, make_topic: MakeTopic, put: Produce
) -> None:
    topic = make_topic(2)
    total = 'F.expr("sum(cast(substr(customer, 2) as long)) as total")'
    name = numbered(workshop, topic, f'orders.groupBy(F.substring("id", 2, 1).alias("digit")).agg({total})')
    put(topic, customers(range(100), 42))
    (event,) = workshop.run()
    assert event["quarantined"] == 1
    assert sum(row[1] for row in workshop.rows(name)) == sum(range(100)) - 42


def test_a_record_on_which_a_join_fails_is_set_aside(workshop: Workshop, make_topic: MakeTopic, put: Produce) -> None:
    """It fails with what it is joined with, and not alone."""
    topic, prices = make_topic(2), make_topic()
    name = f"p-{topic[-6:]}"
    of_prices = f'topic("{prices}", value=json("id string, price string"))'
    inputs = f'{{"orders": topic("{topic}", value={ORDERS}), "prices": {of_prices}}}'
    joined = 'orders.join(prices.drop("_record"), "id").selectExpr("id", "cast(price as int) as price", "_record")'
    facts = {"name": name, "rows": 5, "inputs": inputs, "outputs": f'table("{name}")'}
    workshop.write(PIPELINE.format(parameters="orders, prices", result=joined, **facts))
    put(topic, customers(range(50)))
    texts = [json.dumps({"id": f"o{number}", "price": "free" if number == 7 else f"{number}"}) for number in range(50)]
    put(prices, [Record(text.encode()) for text in texts])
    (event,) = workshop.run()
    assert (event["quarantined"], event["quarantined_by_input"]) == (1, {"orders": 1})
    assert len(workshop.rows(name)) == 49


def test_more_than_are_found_by_trying_are_refused_whatever_the_budget(
    workshop: Workshop, make_topic: MakeTopic, put: Produce, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cordwood.pipelines.rows.quarantine.MAX_SEARCHED", 2)
    topic = make_topic()
    numbered(workshop, topic, 'orders.selectExpr("cast(substr(customer, 2) as int) as number")', rows=1_000)
    put(topic, [each._replace(partition=0) for each in customers(range(10), 1, 2, 3, 4, 5)])
    with pytest.raises(OverBudget, match="the function fails on more than 2 records of batch 0") as refused:
        workshop.run()
    assert "try_cast" in refused.value.hint
