"""Pipelines with Spark's state: sums that go on after a restart, in a table that is upserted as they change."""

from pathlib import Path

import pytest
from confluent_kafka import Producer
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession
from tests.conftest import MakeTopic, RunningBroker
from tests.spark.conftest import Load, Produce, Record
from tests.spark.pipeline_workshop import Workshop

from cordwood.pipelines.definition.errors import InvalidRows, OverBudget
from cordwood.pipelines.process.spark_failures import refusal_of

PIPELINE = """
@guarded("cents int")
def cents(row):
    if row["amount"] == 13:
        raise ValueError("unlucky")
    return {{"cents": row["amount"] * 100}}

@pipeline("{name}", version=1, inputs=topic("{topic}", value=json("who string, amount int")), stateful=True,
          output_mode="update", quarantine=budget(rows=2), max_rows_per_batch=100,
          outputs=table("{name}", key="who"))
def sums(payments):
    return cents(payments).groupBy("who").agg(F.sum("cents").alias("cents"), F.count("*").alias("payments"))
"""
SPREAD = PIPELINE.replace(
    "cents(payments)", "cents(payments.withColumn('part', F.explode(F.sequence(F.lit(1), 'parts'))))"
)
SPREAD = SPREAD.replace("amount int", "amount int, parts int").replace("budget(rows=2)", "budget(rows=1)")
READING = {"startingOffsets": "earliest", "kafka.isolation.level": "read_committed"}


@pytest.fixture
def workshop(tmp_path: Path, spark: SparkSession, broker: RunningBroker) -> Workshop:
    return Workshop(tmp_path, spark, broker.bootstrap)


def payment(who: str, amount: int) -> Record:
    return Record(f'{{"who": "{who}", "amount": {amount}}}'.encode(), who.encode())


def test_sums_go_on_after_a_restart_and_poison_stays_out_of_them(
    workshop: Workshop, make_topic: MakeTopic, put: Produce, load: Load
) -> None:
    topic = make_topic()
    name = f"p-{topic[-6:]}"
    workshop.write(PIPELINE.format(name=name, topic=topic))
    put(topic, [payment("ann", 1), payment("bob", 2), Record(b"junk", b"k"), payment("ann", 3), payment("bob", 13)])
    first = workshop.run()
    assert sum(event["quarantined"] for event in first) == 2
    assert first[0]["rows_in"] == 5, "also of the first batch, of which Spark does not tell where it began"
    assert workshop.rows(name) == [("ann", 400, 2), ("bob", 200, 1)]
    aside = sorted(bytes(row["value"]) for row in load(f"{name}.quarantine", **READING).collect())
    assert aside == [b"junk", b'{"who": "bob", "amount": 13}']

    put(topic, [payment("ann", 5), payment("cid", 7)])
    (event,) = [event for event in workshop.run() if event["rows_in"]]
    assert (event["rows_in"], event["rows_out"]) == (2, {name: 2})
    assert workshop.rows(name) == [("ann", 900, 3), ("bob", 200, 1), ("cid", 700, 1)]


def test_records_are_counted_and_not_the_offsets_of_markers_and_of_what_was_aborted(
    workshop: Workshop, make_topic: MakeTopic
) -> None:
    topic = make_topic()
    name = f"p-{topic[-6:]}"
    workshop.write(PIPELINE.format(name=name, topic=topic))
    producer = Producer({"bootstrap.servers": workshop.bootstrap, "transactional.id": topic})
    producer.init_transactions(60)
    for who, end in (("ann", producer.abort_transaction), ("bob", producer.commit_transaction)):
        producer.begin_transaction()
        for amount in range(3):
            producer.produce(topic, payment(who, amount).value)
        end(60)
    assert [event["rows_in"] for event in workshop.run() if event["rows_out"][name]] == [3]
    assert workshop.rows(name) == [("bob", 300, 3)]


def test_a_null_key_of_an_aggregation_is_told_with_what_can_be_done(
    workshop: Workshop, make_topic: MakeTopic, put: Produce
) -> None:
    topic = make_topic()
    workshop.write(PIPELINE.format(name=f"p-{topic[-6:]}", topic=topic))
    put(topic, [Record(b'{"amount": 1}')])
    with pytest.raises(InvalidRows, match="1 rows of a batch have a null key") as refused:
        workshop.run()
    assert refused.value.hint == 'leave such rows out in the function: where("who is not null")'


def test_a_record_of_which_many_rows_fail_hides_no_other(
    workshop: Workshop, make_topic: MakeTopic, put: Produce
) -> None:
    topic = make_topic()
    name = f"p-{topic[-6:]}"
    workshop.write(SPREAD.format(name=name, topic=topic))
    put(topic, [Record(f'{{"who": "ann", "amount": 13, "parts": {parts}}}'.encode()) for parts in (20, 1)])
    with pytest.raises(OverBudget, match="at least 2 poison records in batch 0, the budget is 1 record"):
        workshop.run()


def test_a_function_that_does_not_fit_the_state_is_refused_and_the_edition_stays_as_it_was(
    workshop: Workshop, make_topic: MakeTopic, put: Produce
) -> None:
    topic = make_topic()
    name = f"p-{topic[-6:]}"
    workshop.write(PIPELINE.format(name=name, topic=topic))
    put(topic, [payment("ann", 1)])
    workshop.run()
    state = workshop.project.state(name)
    before = state.edition("v1")
    kept = state.definition(before).read_bytes()
    fitting = workshop.file.read_text()
    workshop.write(PIPELINE.format(name=name, topic=topic).replace('groupBy("who")', 'groupBy("who", "amount")'))
    put(topic, [payment("ann", 2)])
    with pytest.raises(StreamingQueryException) as failed:
        workshop.run()
    refusal = refusal_of(failed.value, name, "v1", "pipeline.py")
    assert refusal is not None
    assert refusal.code == "STATE_DOES_NOT_FIT"
    assert (state.edition("v1"), state.definition(before).read_bytes()) == (before, kept)
    workshop.file.write_text(fitting)
    assert sum(event["rows_in"] for event in workshop.run()) == 1
    assert workshop.rows(name) == [("ann", 300, 2)]
