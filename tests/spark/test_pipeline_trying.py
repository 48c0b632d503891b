"""`cordwood pipeline try`: what real records would become, with nothing written anywhere."""

import json
from pathlib import Path
from typing import Any

import pytest
import typer
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from pyspark.sql import SparkSession
from tests.conftest import MakeTopic, RunningBroker
from tests.spark.conftest import Produce, Record
from tests.spark.pipeline_workshop import Workshop, orders

from cordwood.cli.pipeline.try_out import try_out
from cordwood.client.bootstrap import Bootstrap
from cordwood.model.failure import ExitCode
from cordwood.pipelines import pipeline
from cordwood.pipelines import topic as declared_topic
from cordwood.pipelines.execution.sampling import sample

PIPELINE = """
@guarded("half int")
def halved(row):
    if row["amount"] == 13:
        raise ValueError("unlucky")
    return {{"half": None if row["amount"] is None else row["amount"] // 2}}

@pipeline("{name}", version=1, {settings}
          inputs=topic("{topic}", value=json("id string, amount int"), expect=[
              expect("amount >= 0", else_="quarantine"), expect("amount <> 7", else_="{else_}", name="no seven")]),
          outputs={{"out": topic("{name}.out", key="id"), "latest": table("{name}", key="id")}},
          quarantine=budget(rows={rows}))
def tried(orders):
    {returned}
"""


@pytest.fixture
def workshop(tmp_path: Path, spark: SparkSession, broker: RunningBroker) -> Workshop:
    return Workshop(tmp_path, spark, broker.bootstrap)


def test_the_last_records_are_found_behind_markers_and_aborted_records(
    broker: RunningBroker, make_topic: MakeTopic
) -> None:
    topic = make_topic(2)
    producer = Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": topic})
    producer.init_transactions(60)
    for number in range(40):
        producer.begin_transaction()
        for partition in range(2):
            producer.produce(topic, f"{number}".encode(), partition=partition)
        end = producer.commit_transaction if number % 10 == 0 else producer.abort_transaction
        end(60)
    declare = pipeline("numbers", version=1, inputs=declared_topic(topic), outputs=declared_topic("out"))
    declared = declare(lambda rows: rows)
    found = sample(declared, Bootstrap(broker.bootstrap), starting="latest", records=6)
    values = sorted(zip(found.column("partition").to_pylist(), found.column("value").to_pylist(), strict=True))
    assert values == [(each, number) for each in range(2) for number in (b"10", b"20", b"30")]
    everything = sample(declared, Bootstrap(broker.bootstrap), starting="latest", records=1_000)
    assert everything.num_rows == 8


class Try:
    def __init__(self, workshop: Workshop, capsys: pytest.CaptureFixture[str]) -> None:
        self._workshop = workshop
        self._capsys = capsys

    def declare(self, topic: str, *, rows: int = 9, else_: str = "drop", returned: str = "", settings: str = "") -> str:
        name = f"p-{topic[-6:]}"
        made = returned or "rows = halved(orders)\n    return {'out': rows, 'latest': rows}"
        self._workshop.write(
            PIPELINE.format(name=name, topic=topic, rows=rows, else_=else_, returned=made, settings=settings)
        )
        return name

    def __call__(self, starting: str = "earliest", records: int = 1000) -> tuple[int, dict[str, Any]]:
        code, text = self.text(starting, records, as_json=True)
        return code, json.loads(text)

    def text(self, starting: str = "earliest", records: int = 1000, *, as_json: bool = False) -> tuple[int, str]:
        """The exit code, and what was printed."""
        code = 0
        self._capsys.readouterr()
        try:
            try_out(
                str(self._workshop.file),
                starting=starting,
                records=records,
                directory=str(self._workshop.project.directory),
                servers=self._workshop.bootstrap,
                as_json=as_json,
            )
        except typer.Exit as ended:
            code = ended.exit_code
        captured = self._capsys.readouterr()
        return code, captured.out if as_json else captured.out + captured.err


@pytest.fixture
def try_it(workshop: Workshop, capsys: pytest.CaptureFixture[str]) -> Try:
    return Try(workshop, capsys)


def test_what_would_be_written_and_quarantined_is_shown_and_nothing_is_written(
    try_it: Try, workshop: Workshop, make_topic: MakeTopic, put: Produce
) -> None:
    topic = make_topic(partitions=2)
    name = try_it.declare(topic)
    put(topic, [*orders([4, 13, -1, 7]), Record(None, b"o4", 1), Record(b"\xff{", b"k", 1)])
    code, found = try_it()
    assert (code, found["rows_in"], found["problems"]) == (0, 6, [])
    row = {"id": "o4", "amount": 4, "half": 2}
    assert found["outputs"]["latest"] == [row]
    assert found["tombstones"] == {"out": ["o4"], "latest": ["o4"]}
    assert [(each["record"], each["rule"]) for each in found["quarantined"]] == [
        (f"{topic}/0@1", None),
        (f"{topic}/0@2", "amount >= 0"),
        (f"{topic}/1@1", None),
    ]
    assert found["quarantined"][0]["error"] == "ValueError: unlucky"
    assert found["rules"] == {"amount >= 0": {"quarantined": 1}, "no seven": {"dropped": 1}}

    code, text = try_it.text()
    assert code == 0
    for words in ("6 records tried", "1 row, 1 tombstone", "breaks the rule amount >= 0", "no seven", "Nothing was wr"):
        assert words in text
    admin = AdminClient({"bootstrap.servers": workshop.bootstrap})
    assert not [each for each in admin.list_topics(timeout=60).topics if name in each]
    assert not [each for each in admin.list_consumer_groups().result(60).valid if name in each.group_id]
    assert not workshop.project.directory.exists()


def test_a_run_that_would_stop_is_told_of_with_the_exit_code_of_a_problem(
    try_it: Try, make_topic: MakeTopic, put: Produce
) -> None:
    topic = make_topic()
    try_it.declare(topic, rows=1, else_="fail")
    put(topic, orders([1, 7, -1]))
    code, found = try_it()
    assert code == ExitCode.PROBLEM_FOUND
    assert found["problems"] == [
        "The rule no seven would fail the batch, because of 1 record.",
        "The budget is 1 record: a batch with 2 quarantined records would stop the pipeline.",
    ]
    assert [row["id"] for row in found["outputs"]["out"]] == ["o1"]


def test_the_place_and_the_number_of_records_are_those_asked_for(
    try_it: Try, make_topic: MakeTopic, put: Produce
) -> None:
    topic = make_topic(partitions=2)
    try_it.declare(topic, returned="return {'out': orders, 'latest': orders}")
    put(topic, [*orders(range(20, 30)), *orders(range(30, 40), partition=1)])

    def amounts(starting: str, records: int) -> list[int]:
        code, found = try_it(starting, records)
        assert code == 0
        return sorted(row["amount"] for row in found["outputs"]["out"])

    assert amounts("latest", 4) == [28, 29, 38, 39]
    assert amounts("earliest", 3) == [20, 21, 30, 31]
    assert amounts(json.dumps({topic: {"0": 9, "1": 10}}), 100) == [29]
    assert amounts("@2099-01-01T00:00:00Z", 100) == []


def test_a_stateful_function_is_tried_with_ordinary_dataframes(
    try_it: Try, make_topic: MakeTopic, put: Produce
) -> None:
    topic = make_topic()
    counted = "rows = orders.groupBy('id').agg(F.sum('amount').alias('s'))\n    return {'out': rows, 'latest': rows}"
    try_it.declare(topic, returned=counted, settings="stateful=True, output_mode='update',")
    put(topic, orders([3, 3, 4, -1]))
    code, found = try_it()
    assert code == 0
    assert sorted((row["id"], row["s"]) for row in found["outputs"]["latest"]) == [("o3", 6), ("o4", 4)]
    assert len(found["quarantined"]) == 1
