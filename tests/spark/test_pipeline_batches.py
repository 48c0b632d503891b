"""Batches from a real log to tables, in this process: each record once, and poison set aside."""

import json
import subprocess
import sys
from pathlib import Path
from typing import cast

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.connect.session import SparkSession as ConnectSession
from tests.conftest import MakeTopic, RunningBroker
from tests.deadline import eventually
from tests.spark.conftest import Load, Produce, Record
from tests.spark.pipeline_workshop import Workshop, orders

from cordwood.pipelines.definition.errors import AlreadyRunning, OverBudget, WrongState
from cordwood.pipelines.definition.loading import load_pipeline
from cordwood.pipelines.editions.events import Event
from cordwood.pipelines.execution.running import Ending, start


@pytest.fixture
def workshop(tmp_path: Path, spark: SparkSession, broker: RunningBroker) -> Workshop:
    return Workshop(tmp_path, spark, broker.bootstrap)


APPENDED = """
@pipeline("p", version=1, inputs=topic("{topic}", value=json("id string, amount int")), outputs=table("all_orders"),
          max_rows_per_batch=7)
def orders(orders):
    return orders.where("amount > 0").select("id", (F.col("amount") * 2).alias("twice"))
"""


@pytest.mark.landing
def test_what_is_in_the_log_comes_into_the_table_once(workshop: Workshop, make_topic: MakeTopic, put: Produce) -> None:
    topic = make_topic(partitions=2)
    workshop.write(APPENDED.format(topic=topic))
    put(topic, [*orders(range(10)), *orders(range(10, 15), partition=1)])
    first = workshop.run()
    assert sum(event["rows_in"] for event in first) == 15
    assert max(event["rows_in"] for event in first) <= 7
    assert sum(event["rows_out"]["all_orders"] for event in first) == 14
    assert workshop.rows("all_orders") == sorted((f"o{number}", 2 * number) for number in range(1, 15))
    assert workshop.run() == [], "there is nothing new"
    put(topic, orders([15]))
    second = workshop.run()
    assert [(event["rows_in"], event["lag"]) for event in second] == [(1, 0)]
    assert len(workshop.rows("all_orders")) == 15


def test_a_batch_that_spark_forgot_to_note_is_repeated_to_no_effect(
    workshop: Workshop, make_topic: MakeTopic, put: Produce
) -> None:
    topic = make_topic()
    workshop.write(APPENDED.format(topic=topic))
    put(topic, orders(range(1, 6)))
    (event,) = workshop.run()
    workshop.forget_commit("p", event["batch"])
    (again,) = workshop.run()
    assert again["repeated"] == ["all_orders"]
    assert len(workshop.rows("all_orders")) == 5


def lose_last_plan(workshop: Workshop, batch: int) -> Path:
    """Removes the plan and the commit of a batch, as a power cut after the last output may."""
    workshop.forget_commit("p", batch)
    checkpoint = workshop.project.state("p").checkpoint(workshop.edition("p"))
    for path in checkpoint.glob(f"offsets/*{batch}*"):
        path.unlink()
    return checkpoint


def test_a_batch_that_is_planned_anew_with_more_records_is_refused_until_its_plan_is_back(
    workshop: Workshop, make_topic: MakeTopic, put: Produce
) -> None:
    topic = make_topic()
    workshop.write(APPENDED.format(topic=topic))
    put(topic, orders(range(1, 4)))
    (event,) = workshop.run()
    checkpoint = lose_last_plan(workshop, event["batch"])
    put(topic, orders(range(4, 6)))
    for _ in range(2):
        with pytest.raises(WrongState, match="would be lost"):
            workshop.run()
    assert len(workshop.rows("all_orders")) == 3
    repair = [sys.executable, "-m", "cordwood.cli", "spark", "repair-checkpoint", str(checkpoint), "--json"]
    told = json.loads(subprocess.run(repair, capture_output=True, check=True, text=True).stdout)
    assert [each["file"] for each in told["changes"]] == [f"offsets/{event['batch']}"]
    repeated, following = workshop.run()
    assert (repeated["repeated"], following["rows_in"]) == (["all_orders"], 2)
    assert workshop.rows("all_orders") == [(f"o{number}", 2 * number) for number in range(1, 6)]


def test_who_is_interrupted_while_he_waits_leaves_the_edition_to_the_query_that_runs(
    workshop: Workshop, make_topic: MakeTopic, put: Produce
) -> None:
    topic = make_topic()
    workshop.write(APPENDED.format(topic=topic))
    put(topic, orders([1]))

    def interrupted(event: Event) -> None:
        if event["event"] == "batch":
            raise KeyboardInterrupt

    directory = workshop.project.directory
    running = start(
        load_pipeline(workshop.file),
        workshop.spark,
        bootstrap_servers=workshop.bootstrap,
        directory=directory,
        tell=interrupted,
    )
    with pytest.raises(KeyboardInterrupt):
        running.wait()
    with pytest.raises(AlreadyRunning):
        workshop.run()
    running.stop()
    assert running.wait() is Ending.STOPPED
    assert workshop.run() == []


def test_a_query_that_nobody_will_wait_for_does_not_go_on(
    workshop: Workshop, make_topic: MakeTopic, put: Produce, spark: SparkSession
) -> None:
    """The query's lock is released: it would run beside the next one."""
    topic = make_topic()
    workshop.write(APPENDED.format(topic=topic))
    put(topic, orders([1]))

    def fail(event: object) -> None:
        raise BrokenPipeError

    others = {query.id for query in spark.streams.active}
    with pytest.raises(BrokenPipeError):
        start(
            load_pipeline(workshop.file),
            spark,
            bootstrap_servers=workshop.bootstrap,
            directory=workshop.project.directory,
            tell=fail,
        )
    # Other tests of this Spark may have queries of their own.
    eventually(lambda: {query.id for query in spark.streams.active} <= others, what="the end of the query")
    workshop.run()
    assert workshop.rows("all_orders") == [("o1", 2)]


KEYED = """
@pipeline("{name}", version=1, inputs=topic("{topic}", key=text(), value=text()),
          outputs=topic("{name}.out", key="key", value=text()), source_options={{"minPartitions": "4"}})
def passed_on(rows):
    return rows.selectExpr("key", "explode(array(concat(value, 'a'), concat(value, 'b'))) as value", "_record")
"""


def test_records_of_one_key_keep_their_order_though_several_tasks_write_them(
    workshop: Workshop, make_topic: MakeTopic, put: Produce, load: Load
) -> None:
    topic = make_topic()
    name = f"p-{topic[-6:]}"
    workshop.write(KEYED.format(name=name, topic=topic))
    put(topic, [Record(f"{number:05}".encode(), b"k%d" % (number % 3)) for number in range(3000)])
    workshop.run()
    written: dict[bytes, list[bytes]] = {}
    for row in load(f"{name}.out", startingOffsets="earliest").orderBy("partition", "offset").collect():
        written.setdefault(bytes(row["key"]), []).append(bytes(row["value"]))
    assert {len(values) for values in written.values()} == {2000}
    assert all(values == sorted(values) for values in written.values())


def test_a_session_that_cannot_run_it_is_refused_before_anything_is_made(workshop: Workshop) -> None:
    workshop.write(APPENDED.format(topic="orders"))
    workshop.spark = cast("SparkSession", object.__new__(ConnectSession))  # never asked for anything
    with pytest.raises(WrongState, match="p cannot be run through Spark Connect") as refused:
        workshop.run()
    assert "classic session" in refused.value.hint
    assert workshop.project.pipeline_names() == []


def test_without_its_checkpoint_an_edition_is_not_gone_on_with(
    workshop: Workshop, make_topic: MakeTopic, put: Produce
) -> None:
    topic = make_topic()
    workshop.write(APPENDED.format(topic=topic))
    put(topic, orders([1]))
    workshop.run()
    state = workshop.project.state("p")
    state.checkpoint("v1").rename(state.checkpoint("v1").with_name("lost"))
    with pytest.raises(WrongState, match="checkpoint of edition v1 of p is gone"):
        workshop.run()


def test_poison_beyond_the_budget_stops_the_pipeline_and_nothing_of_the_batch_is_written(
    workshop: Workshop, make_topic: MakeTopic, put: Produce
) -> None:
    topic = make_topic()
    workshop.write(APPENDED.format(topic=topic))
    put(topic, [*orders([1, 2]), Record(b"{nonsense", b"k"), *orders([3])])
    with pytest.raises(OverBudget) as caught:
        workshop.run()
    assert "1 poison record among the 4 of batch 0, the budget is 0 records" in caught.value.message
    assert f"{topic}/0@2: the value is no JSON object" in caught.value.message
    assert workshop.rows("all_orders") == []


def test_a_function_that_fails_on_a_record_is_told_with_its_address(
    workshop: Workshop, make_topic: MakeTopic, put: Produce
) -> None:
    topic = make_topic(partitions=2)
    workshop.write(
        f"""
        @pipeline("p", version=1, inputs=topic("{topic}", value=json("id string, amount int")), outputs=table("odd"))
        def orders(orders):
            return orders.select("id", (F.lit(100) / (F.col("amount") - 5)).alias("ratio"))
        """
    )
    put(topic, [*orders(range(20), partition=1), *orders(range(30, 40))])
    with pytest.raises(OverBudget) as caught:
        workshop.run()
    assert f"{topic}/1@5: [DIVIDE_BY_ZERO]" in caught.value.message


def test_a_key_and_its_tombstones_make_a_table(workshop: Workshop, make_topic: MakeTopic, put: Produce) -> None:
    topic = make_topic()
    workshop.write(
        f"""
        @pipeline("p", version=1, inputs=topic("{topic}", value=json("id string, amount int")),
                  outputs=table("latest", key="id"), max_rows_per_batch=3)
        def orders(orders):
            return orders
        """
    )
    put(topic, [*orders([1, 2, 3, 4]), Record(None, b"o2"), Record(b'{"id": "o3", "amount": 33}', b"o3")])
    put(topic, [Record(None, b"o1"), *orders([1]), Record(None, b"o9")])
    workshop.run()
    assert workshop.rows("latest") == [("o1", 1), ("o3", 33), ("o4", 4)]


def test_two_topics_are_two_inputs(workshop: Workshop, make_topic: MakeTopic, put: Produce) -> None:
    first, second = make_topic(), make_topic()
    workshop.write(
        f"""
        @pipeline("p", version=1, outputs={{"a": table("first", key="id"), "b": table("second")}},
                  inputs={{"left": topic("{first}", value=json("id string, amount int")),
                          "right": topic("{second}", key=text(), value=text())}})
        def both(left, right):
            return {{"a": left, "b": right}}
        """
    )
    put(first, orders([1, 2]))
    put(second, [Record(b"x", b"k")])
    events = workshop.run()
    assert sum(event["rows_in"] for event in events) == 3
    assert workshop.rows("first") == [("o1", 1), ("o2", 2)]
    assert workshop.rows("second") == [("k", "x")]


def test_another_version_is_refused_unless_it_is_to_go_on_in_place(
    workshop: Workshop, make_topic: MakeTopic, put: Produce
) -> None:
    topic = make_topic()
    workshop.write(APPENDED.format(topic=topic))
    put(topic, orders([1]))
    workshop.run()
    workshop.write(APPENDED.format(topic=topic).replace("version=1", "version=2").replace("* 2", "* 3"))
    put(topic, orders([2]))
    with pytest.raises(WrongState, match="has version 2 of p, and version 1 is live"):
        workshop.run()
    workshop.run(in_place=True)
    assert workshop.rows("all_orders") == [("o1", 2), ("o2", 6)]
    assert workshop.project.state("p").edition("v1").version == 2
