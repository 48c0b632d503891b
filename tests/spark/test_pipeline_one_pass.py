"""Batches in one pass: one job for each output, and no loss of records that the pass did not read."""

import json
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from tests.conftest import MakeTopic, RunningBroker
from tests.spark.conftest import Load, Produce, Record
from tests.spark.pipeline_workshop import Events, Workshop, orders

from cordwood.pipelines.definition.errors import OverBudget

READING = {"startingOffsets": "earliest", "kafka.isolation.level": "read_committed"}


@pytest.fixture
def workshop(tmp_path: Path, spark: SparkSession, broker: RunningBroker) -> Workshop:
    return Workshop(tmp_path, spark, broker.bootstrap)


TO_A_TOPIC = """
@pipeline("{name}", version=1, inputs=topic("{topic}", value=json("id string, amount int")),
          outputs=topic("{name}.out", key="id"), quarantine=budget(rows={rows}))
def passed_on(orders):
    return {returned}
"""


def declared(workshop: Workshop, topic: str, *, rows: int = 0, returned: str = "orders") -> str:
    name = f"p-{topic[-6:]}"
    workshop.write(TO_A_TOPIC.format(name=name, topic=topic, rows=rows, returned=returned))
    return name


def amounts(load: Load, topic: str) -> list[int]:
    return [json.loads(bytes(row["value"]))["amount"] for row in load(topic, **READING).collect()]


def jobs_of(workshop: Workshop) -> tuple[Events, list[int]]:
    """The events of a run, and the ids of its jobs on Spark."""
    scheduler = workshop.spark.sparkContext._jsc.sc().dagScheduler()
    first = scheduler.numTotalJobs()
    told = workshop.run()
    return told, list(range(first, scheduler.numTotalJobs()))


def test_a_batch_with_no_poison_is_one_job(workshop: Workshop, make_topic: MakeTopic, put: Produce, load: Load) -> None:
    topic = make_topic(partitions=2)
    name = declared(workshop, topic)
    put(topic, [*orders(range(10)), *orders(range(10, 15), partition=1)])
    (event,), jobs = jobs_of(workshop)
    assert (event["rows_in"], event["rows_out"], event["quarantined"]) == (15, {f"{name}.out": 15}, 0)
    assert event["spent"]["one_pass"]
    assert len(jobs) == 1
    assert sorted(amounts(load, f"{name}.out")) == list(range(15))


def test_what_cannot_be_decoded_is_set_aside_and_the_rest_is_not_made_again(
    workshop: Workshop, make_topic: MakeTopic, put: Produce, load: Load
) -> None:
    topic = make_topic()
    name = declared(workshop, topic, rows=1)
    put(topic, [*orders([1, 2]), Record(b"{nonsense", b"k"), *orders([3])])
    (event,), jobs = jobs_of(workshop)
    assert (event["rows_in"], event["quarantined"], event["spent"]["one_pass"]) == (4, 1, True)
    assert len(jobs) == 2
    assert sorted(amounts(load, f"{name}.out")) == [1, 2, 3]
    assert load(f"{name}.quarantine", **READING).count() == 1


@pytest.mark.parametrize(
    "returned",
    [
        "orders.limit(1)",
        "orders.where('false')",
        "orders.join(orders.sparkSession.range(0).toDF('n'), F.col('n') == F.col('amount')).drop('n')",
    ],
    ids=["limit", "false", "empty-join"],
)
def test_poison_that_the_function_never_reads_does_not_vanish(
    workshop: Workshop, make_topic: MakeTopic, put: Produce, load: Load, returned: str
) -> None:
    topic = make_topic(partitions=2)
    name = declared(workshop, topic, returned=returned)
    put(topic, [*orders(range(10)), Record(b"{nonsense", b"k", 1)])
    with pytest.raises(OverBudget, match="1 poison record among the 11 of batch 0"):
        workshop.run()
    assert amounts(load, f"{name}.out") == []


def test_what_was_staged_before_a_record_was_found_to_be_poison_is_never_seen(
    workshop: Workshop, make_topic: MakeTopic, put: Produce, load: Load
) -> None:
    topic = make_topic()
    name = declared(workshop, topic, rows=1, returned="orders.withColumn('ratio', F.lit(100) / (F.col('amount') - 5))")
    put(topic, orders(range(8)))
    (event,) = workshop.run()
    assert (event["rows_in"], event["quarantined"], event["spent"]["one_pass"]) == (8, 1, False)
    assert sorted(amounts(load, f"{name}.out")) == [0, 1, 2, 3, 4, 6, 7]
    # Poison is expected now, so the next batch goes step by step; it has none, and the one after it goes in one pass.
    for number in (8, 9):
        put(topic, orders([number]))
        (event,) = workshop.run()
        assert event["rows_out"] == {f"{name}.out": 1}
    assert sorted(amounts(load, f"{name}.out")) == [0, 1, 2, 3, 4, 6, 7, 8, 9]


def test_several_outputs_have_the_same_rows_and_one_job_each(
    workshop: Workshop, make_topic: MakeTopic, put: Produce, load: Load
) -> None:
    topic = make_topic(partitions=2)
    name = f"p-{topic[-6:]}"
    workshop.write(
        f"""
        @pipeline("{name}", version=1, inputs=topic("{topic}", value=json("id string, amount int")),
                  outputs={{"large": topic("{name}.large", key="id"), "all": table("{name}")}})
        def both(orders):
            return {{"large": orders.where("amount > 5"), "all": orders}}
        """
    )
    put(topic, [*orders(range(10)), *orders(range(10, 15), partition=1)])
    (event,), jobs = jobs_of(workshop)
    assert (event["rows_in"], event["rows_out"]) == (15, {"large": 9, "all": 15})
    assert event["spent"]["one_pass"]
    assert len(jobs) == 2
    assert sorted(amounts(load, f"{name}.large")) == list(range(6, 15))
    assert len(workshop.rows(name)) == 15


def test_records_of_a_key_keep_their_order_without_a_shuffle_where_a_task_reads_whole_partitions(
    workshop: Workshop, make_topic: MakeTopic, put: Produce, load: Load
) -> None:
    topic = make_topic(partitions=4)
    name = declared(workshop, topic)
    records = [
        Record(json.dumps({"id": f"k{key}", "amount": number}).encode(), b"k%d" % key, key % 4)
        for number in range(7000)
        for key in range(5)
    ]
    put(topic, records)
    _, (job,) = jobs_of(workshop)
    tracker = workshop.spark.sparkContext.statusTracker()
    told = tracker.getJobInfo(job)
    assert told is not None
    assert len(told.stageIds) == 1, "no shuffle"
    (stage,) = told.stageIds
    info = tracker.getStageInfo(stage)
    assert info is not None
    assert info.numTasks > 1
    written: dict[str, list[int]] = {}
    for row in load(f"{name}.out", **READING).orderBy("partition", "offset").collect():
        order = json.loads(bytes(row["value"]))
        written.setdefault(order["id"], []).append(order["amount"])
    assert {len(values) for values in written.values()} == {7000}
    assert all(values == sorted(values) for values in written.values())
