"""Poison records within the budget: set aside whole, with error and origin, while everything else goes on."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import pytest
from confluent_kafka import Producer
from pyspark.sql import DataFrame, SparkSession
from tests.conftest import MakeTopic, RunningBroker
from tests.spark.conftest import Load, Produce, Record
from tests.spark.pipeline_workshop import Workshop, orders

from cordwood.cli.pipeline.view import editions_of
from cordwood.pipelines import guarded
from cordwood.pipelines.definition.errors import InvalidRows, OverBudget, Unrepeatable
from cordwood.pipelines.definition.loading import load_pipeline
from cordwood.pipelines.execution.outputs import Outputs
from cordwood.pipelines.execution.progress import progress_path
from cordwood.pipelines.execution.requeueing import Requeue
from cordwood.pipelines.rows.guarding import results_row_by_row

PIPELINE = """
@guarded("risk double")
def score(row):
    if row["amount"] == 13:
        raise ValueError("unlucky")
    return {{"risk": row["amount"] / 10}}

@guarded("initial string", arrow=True)
def initials(rows):
    import pyarrow as pa
    if "o14" in rows.column("id").to_pylist():
        raise ValueError("o14 has no initial")
    return pa.RecordBatch.from_arrays([pa.array([each[0] for each in rows.column("id").to_pylist()])], ["initial"])

@pipeline("{name}", version=3, inputs=topic("{topic}", value=json("id string, amount int not null")),
          outputs={{"scored": topic("{name}.scored", key="id"), "latest": table("{name}", key="id")}},
          quarantine=budget(rows={rows}))
def scored(orders):
    rows = initials(score(orders.select(F.explode(F.array("id", F.lit("twin"))).alias("id"), "amount", "_record")))
    rows = rows.where("id <> 'twin'")
    return {{"scored": rows, "latest": rows.withColumn("id", F.expr("if(amount = 16, null, id)"))}}
"""


@pytest.fixture
def workshop(tmp_path: Path, spark: SparkSession, broker: RunningBroker) -> Workshop:
    return Workshop(tmp_path, spark, broker.bootstrap)


def headers_of(row: object) -> dict[str, str]:
    return {header["key"]: bytes(header["value"]).decode() for header in row["headers"]}  # type: ignore[index]


def test_poison_records_are_set_aside_whole_and_everything_else_goes_on(
    workshop: Workshop, make_topic: MakeTopic, put: Produce, load: Load
) -> None:
    topic = make_topic()
    name = f"p-{topic[-6:]}"
    workshop.write(PIPELINE.format(name=name, topic=topic, rows=5))
    broken = [Record(b"{nonsense", b"k1", headers=[("trace", b"7")]), Record(b'{"id": "x"}', None)]
    put(topic, [*orders([10, 11, 12, 13, 14, 16, 17, 18, 19]), *broken])
    (event,) = workshop.run()
    good = [10, 11, 12, 17, 18, 19]
    assert (event["rows_in"], event["quarantined"]) == (11, 5)
    assert event["rows_out"] == {"scored": 6, "latest": 6}

    reading = {"startingOffsets": "earliest", "includeHeaders": "true", "kafka.isolation.level": "read_committed"}
    aside = {bytes(row["value"]): row for row in load(f"{name}.quarantine", **reading).collect()}
    told = {value.decode(): headers_of(row)["cordwood.error"] for value, row in aside.items()}
    assert told.pop("{nonsense").startswith("the value is no JSON object")
    assert told.pop('{"id": "x"}') == "amount is missing or null"
    by_amount = {json.loads(value)["amount"]: error for value, error in told.items()}
    assert by_amount[13] == "ValueError: unlucky"
    assert by_amount[14] == "ValueError: o14 has no initial"
    assert by_amount[16] == f"the key of table {name} (id) is null"
    first = aside[b"{nonsense"]
    headers = headers_of(first)
    assert bytes(first["key"]) == b"k1"
    assert headers["trace"] == "7"
    assert int(headers.pop("cordwood.timestamp")) >= 0
    state = workshop.project.state(name)
    assert headers.pop("cordwood.query") == state.edition("v3").query_id
    assert {key: text for key, text in headers.items() if key.startswith("cordwood.")} == {
        "cordwood.error": headers["cordwood.error"],
        "cordwood.topic": topic,
        "cordwood.partition": "0",
        "cordwood.offset": "9",
        "cordwood.pipeline": name,
        "cordwood.version": "3",
        "cordwood.edition": "v3",
        "cordwood.batch": "0",
    }

    written = load(f"{name}.scored", **reading).collect()
    values = [json.loads(bytes(row["value"])) for row in written]
    assert sorted(value["amount"] for value in values) == good
    assert all(bytes(row["key"]).decode() == value["id"] for row, value in zip(written, values, strict=True))
    assert sorted(row[0] for row in workshop.rows(name)) == sorted(f"o{number}" for number in good)

    # The batch is done; the test makes Spark forget it. All outputs still know it, under any name that the function
    # gives them.
    workshop.forget_commit(name, event["batch"])
    renamed = PIPELINE.format(name=name, topic=topic, rows=5).replace('"latest":', '"newest":')
    workshop.write(renamed.replace('"scored":', '"by_risk":'))
    (again,) = workshop.run()
    assert again["quarantined"] == 5
    assert load(f"{name}.scored", **reading).count() == 6
    assert load(f"{name}.quarantine", **reading).count() == 5
    assert len(workshop.rows(name)) == 6


def test_one_poison_record_more_than_allowed_and_nothing_is_written(
    workshop: Workshop, make_topic: MakeTopic, put: Produce, load: Load
) -> None:
    topic = make_topic()
    name = f"p-{topic[-6:]}"
    workshop.write(PIPELINE.format(name=name, topic=topic, rows=2))
    put(topic, orders([10, 13, 14, 16]))
    with pytest.raises(OverBudget, match="at least 3 poison records among the 4 of batch 0, the budget is 2 records"):
        workshop.run()
    committed = {"startingOffsets": "earliest", "kafka.isolation.level": "read_committed"}
    for written in (f"{name}.scored", f"{name}.quarantine"):
        assert load(written, **committed).count() == 0
    assert workshop.rows(name) == []


def test_what_cannot_be_told_apart_is_not_lost_however_large_the_budget(
    workshop: Workshop, make_topic: MakeTopic, put: Produce, load: Load, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cordwood.pipelines.rows.quarantine.MAX_ISOLATED", 2)
    topic = make_topic()
    name = f"p-{topic[-6:]}"
    workshop.write(PIPELINE.format(name=name, topic=topic, rows=100))
    put(topic, orders([10, 13, 13, 13, 13, 17]))
    with pytest.raises(OverBudget, match="fails on more than 2 records of batch 0"):
        workshop.run()
    assert load(f"{name}.quarantine", startingOffsets="earliest").count() == 0
    assert workshop.rows(name) == []


FICKLE = """
@guarded("risk double")
def score(row):
    if str(row["amount"]) in open("{file}").read().split():
        raise ValueError("unlucky")
    return {{"risk": row["amount"] / 10}}

@pipeline("{name}", version=1, inputs=topic("{topic}", value=json("id string, amount int")),
          outputs=table("{name}"), quarantine=budget(rows={rows}))
def scored(orders):
    return score(orders)
"""


@contextmanager
def ended_after_the_quarantine() -> Iterator[None]:
    """Kills the run, as it were, once poison records are set aside, before the outputs are written."""
    with pytest.MonkeyPatch.context() as killing:
        killing.delattr(Outputs, "commit")
        with pytest.raises(AttributeError):
            yield


@pytest.fixture
def interrupted(workshop: Workshop, make_topic: MakeTopic, put: Produce, tmp_path: Path) -> tuple[str, Path]:
    """A topic of three orders with an interrupted batch, and the file that names the poison among them."""
    topic = make_topic()
    unlucky = tmp_path / "unlucky"
    unlucky.write_text("13")
    workshop.write(FICKLE.format(name=f"p-{topic[-6:]}", topic=topic, file=unlucky, rows=1))
    put(topic, orders([12, 13, 14]))
    with ended_after_the_quarantine():
        workshop.run()
    return topic, unlucky


def test_a_batch_that_was_interrupted_and_fails_on_another_record_now_does_not_lose_it(
    workshop: Workshop, interrupted: tuple[str, Path], load: Load
) -> None:
    topic, unlucky = interrupted
    name = f"p-{topic[-6:]}"
    unlucky.write_text("14")
    with pytest.raises(Unrepeatable, match=rf"batch 0 was interrupted .* fails on others \({topic}/0@2: ValueError"):
        workshop.run()
    assert workshop.rows(name) == []
    unlucky.write_text("13")
    (event,) = workshop.run()
    assert (event["rows_in"], event["quarantined"]) == (3, 1)
    assert [row[0] for row in workshop.rows(name)] == ["o12", "o14"]
    assert load(f"{name}.quarantine", startingOffsets="earliest").count() == 1


def test_a_record_that_was_set_aside_before_an_interruption_comes_into_the_outputs_once(
    workshop: Workshop, interrupted: tuple[str, Path], put: Produce
) -> None:
    """Either the repeated batch, in which the record passes, or a requeue writes it: not both."""
    topic, unlucky = interrupted
    name = f"p-{topic[-6:]}"
    unlucky.write_text("")
    # A forgotten edition had this name: its quarantined records do not belong to the new one.
    theirs = {"topic": topic, "partition": "0", "offset": "0", "timestamp": "0", "edition": "v1", "batch": "0"}
    headers = [(f"cordwood.{key}", text.encode()) for key, text in {**theirs, "query": "another"}.items()]
    put(f"{name}.quarantine", [each._replace(headers=headers) for each in orders([12])])
    (event,) = workshop.run()
    assert (event["rows_in"], event["quarantined"]) == (3, 1)
    assert [row[0] for row in workshop.rows(name)] == ["o12", "o14"]
    assert requeued(workshop, name) == 1
    assert [row[0] for row in workshop.rows(name)] == ["o12", "o13", "o14"]


def test_a_requeue_that_was_interrupted_loses_no_record_that_fails_again(
    workshop: Workshop, make_topic: MakeTopic, put: Produce, tmp_path: Path
) -> None:
    """Requeues and batches have numbers of their own: records that batch 0 set aside are not those of requeue 0."""
    topic = make_topic()
    name = f"p-{topic[-6:]}"
    unlucky = tmp_path / "unlucky"
    unlucky.write_text("13 14")
    workshop.write(FICKLE.format(name=name, topic=topic, file=unlucky, rows=2))
    put(topic, orders([12, 13, 14]))
    workshop.run()
    unlucky.write_text("14")
    with ended_after_the_quarantine():
        requeued(workshop, name)
    unlucky.write_text("13")
    with pytest.raises(Unrepeatable, match=rf"batch requeue 0 .* fails on others \({topic}/0@1: ValueError"):
        requeued(workshop, name)
    unlucky.write_text("")
    assert requeued(workshop, name) == 2
    assert [row[0] for row in workshop.rows(name)] == ["o12", "o13"], "o14 was set aside again"
    assert requeued(workshop, name) == 1
    assert [row[0] for row in workshop.rows(name)] == ["o12", "o13", "o14"]


def requeued(workshop: Workshop, name: str) -> int:
    state = workshop.project.state(name)
    pipeline = load_pipeline(workshop.file)
    return Requeue(workshop.spark, pipeline, state, state.live_edition(), workshop.brokers).run(superseded=False).sent


def test_a_requeue_says_why_records_failed_again_and_status_counts_what_is_left(
    workshop: Workshop, make_topic: MakeTopic, put: Produce, tmp_path: Path
) -> None:
    topic = make_topic()
    name = f"p-{topic[-6:]}"
    unlucky = tmp_path / "unlucky"
    unlucky.write_text("13 14")
    workshop.write(FICKLE.format(name=name, topic=topic, file=unlucky, rows=2))
    put(topic, orders([12, 13, 14]))
    workshop.run()
    state = workshop.project.state(name)

    def quarantined() -> int:
        (view,) = editions_of(state)
        count: int = view.as_json()["quarantined"]
        return count

    def by_input() -> dict[str, int]:
        counts: dict[str, int] = (state.files.read(progress_path(state, "v1")) or {})["quarantined_by_input"]
        return counts

    assert (quarantined(), by_input()) == (2, {"orders": 2})
    unlucky.write_text("14")
    pipeline = load_pipeline(workshop.file)
    done = Requeue(workshop.spark, pipeline, state, state.live_edition(), workshop.brokers).run(superseded=False)
    assert (done.sent, done.failed_again, quarantined(), by_input()) == (2, 1, 1, {"orders": 1})
    ((origin, error),) = done.reasons
    assert (origin.topic, origin.offset) == (topic, 2)
    assert "ValueError" in error
    unlucky.write_text("")
    assert (requeued(workshop, name), quarantined()) == (1, 0)


@pytest.mark.parametrize("stateful", [False, True], ids=["batches", "stateful"])
def test_quarantined_records_are_counted_by_the_input_that_they_came_from(
    workshop: Workshop, make_topic: MakeTopic, put: Produce, stateful: bool
) -> None:
    left, right = make_topic(), make_topic()
    name = f"p-{left[-6:]}"
    settings = 'stateful=True, output_mode="update",' if stateful else ""
    rows = "score(left.unionByName(right))"
    workshop.write(
        f"""
        @guarded("score int")
        def score(row):
            return {{"score": 100 // (row["amount"] - 13)}}

        @pipeline("{name}", version=1, {settings} quarantine=budget(rows=9), outputs=table("{name}", key="id"),
                  inputs={{"left": topic("{left}", value=json("id string, amount int"),
                                        expect=expect("amount > 0", else_="quarantine")),
                          "right": topic("{right}", value=json("id string, amount int"))}})
        def both(left, right):
            return {rows + ".groupBy('id').agg(F.max('score').alias('score'))" if stateful else rows}
        """
    )
    put(left, [*orders([1, -2]), Record(b"junk", b"k")])
    put(right, [*orders([3]), Record(b"junk", b"k")])
    first = [event for event in workshop.run() if event["rows_in"]]
    assert [event["quarantined_by_input"] for event in first] == [{"left": 2, "right": 1}]
    put(right, orders([13, 14]))
    second = [event for event in workshop.run() if event["rows_in"]]
    assert [event["quarantined_by_input"] for event in second] == [{"right": 1}]
    state = workshop.project.state(name)
    assert (state.files.read(progress_path(state, "v1")) or {})["quarantined_by_input"] == {"left": 2, "right": 2}


def test_a_row_that_came_from_no_record_and_cannot_be_written_is_told_of(
    workshop: Workshop, make_topic: MakeTopic, put: Produce, tmp_path: Path
) -> None:
    topic = make_topic()
    (tmp_path / "unlucky").write_text("13")
    fickle = FICKLE.format(name=f"p-{topic[-6:]}", topic=topic, file=tmp_path / "unlucky", rows=1)
    unrelated = "orders.withColumn('_record', F.expr('if(id is null, _record, null)'))"
    workshop.write(fickle.replace("return score(orders)", f"return score({unrelated})"))
    put(topic, orders([12, 13]))
    with pytest.raises(InvalidRows, match=r"came from no record .* ValueError: unlucky"):
        workshop.run()


def test_a_record_that_fits_into_its_topic_compressed_only_can_be_set_aside(
    workshop: Workshop, make_topic: MakeTopic, tmp_path: Path
) -> None:
    topic = make_topic()
    (tmp_path / "unlucky").write_text("")
    workshop.write(FICKLE.format(name=f"p-{topic[-6:]}", topic=topic, file=tmp_path / "unlucky", rows=1))
    producer = Producer(
        {"bootstrap.servers": workshop.bootstrap, "compression.type": "zstd", "message.max.bytes": 8 << 20}
    )
    producer.produce(topic, b"no JSON " * (1 << 18))
    assert producer.flush(60) == 0
    (event,) = workshop.run()
    assert event["quarantined"] == 1


def test_an_error_that_repeats_a_large_row_fits_beside_it() -> None:
    def parse(row: str) -> dict[str, str]:
        raise ValueError(f"cannot read {row}")

    (result,) = results_row_by_row(["x" * 2_000_000], parse, pa.struct({"a": pa.string()}), ()).to_pylist()
    assert result["error"].startswith("ValueError: cannot read xxx")
    assert len(result["error"]) == 500


@guarded("half int")
def half(row: dict[str, int]) -> dict[str, int]:
    if row["n"] % 2:
        raise ValueError("odd")
    return {"half": row["n"] // 2}


def test_outside_of_a_pipeline_a_guarded_function_raises_as_ever(spark: SparkSession) -> None:
    numbers: DataFrame = spark.createDataFrame([(2,), (4,)], "n int")
    assert [tuple(row) for row in half(numbers).collect()] == [(2, 1), (4, 2)]
    with pytest.raises(Exception, match="ValueError: odd"):
        half(spark.createDataFrame([(3,)], "n int")).collect()
