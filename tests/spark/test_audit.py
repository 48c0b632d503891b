"""The audit finds and counts every fault of a topic's history, and reports no fault in a sound one."""

import json
from typing import Any

import pytest
from confluent_kafka import Producer
from pyspark.sql import Row, SparkSession
from tests.conftest import MakeTopic, RunningBroker
from tests.deadline import eventually
from tests.spark.conftest import Produce, Record
from typer.testing import CliRunner, Result

from cordwood.cli.app import app
from cordwood.client.answers import LATEST, Isolation
from cordwood.client.bootstrap import Bootstrap
from cordwood.client.cluster import Cluster
from cordwood.client.settings import ClientSettings
from cordwood.model.failure import ExitCode
from cordwood.model.identifiers import TopicPartition
from cordwood.pipelines.audit import running
from cordwood.pipelines.audit.report import BadQuestion, Check, EventId, Questions, Report

NOW_MS = 1_700_000_000_000


@pytest.fixture
def audit(spark: SparkSession, broker: RunningBroker) -> Any:
    def audit(topic: str, **questions: Any) -> Report:
        return running.audit(spark, Questions(Bootstrap(broker.bootstrap), topic, **questions))

    return audit


def event(key: str, number: int, partition: int, time_ms: int = NOW_MS) -> Record:
    value = json.dumps({"order": {"id": number}}).encode()
    return Record(value, key.encode(), partition, time_ms, [("event", str(number).encode())])


def test_a_topic_in_order_is_clean(audit: Any, put: Produce, make_topic: MakeTopic) -> None:
    topic = make_topic(2)
    put(topic, [event(f"key {number % 6}", number, number % 2, NOW_MS + number) for number in range(300)])
    report: Report = audit(topic, event_id=EventId.parse("json:order.id"))
    assert (report.records, report.keys, report.ok) == (300, 6, True)
    assert [(each.check, each.found) for each in report.findings] == [(check, 0) for check in Check]
    assert [(each.partition, each.records, each.share) for each in report.partitions] == [(0, 150, 0.5), (1, 150, 0.5)]
    assert {each["records"] for each in report.hot_keys} == {50}


def test_what_is_out_of_order_is_found(audit: Any, put: Produce, make_topic: MakeTopic) -> None:
    topic = make_topic(4)
    put(topic, [event("hot", number, 0, NOW_MS + number) for number in range(100)])
    put(topic, [event("torn", 200, 0), event("torn", 201, 1), event("late", 202, 2, NOW_MS)])
    put(topic, [event("late", 203, 2, NOW_MS - 4000), event("hot", 7, 0, NOW_MS + 500)])
    report: Report = audit(topic, event_id=EventId.parse("header:event"))
    assert report.failed == (Check.SPLIT_KEYS, Check.DUPLICATES)
    split = report.finding(Check.SPLIT_KEYS)
    assert (split.found, split.samples) == (1, ({"key": "torn", "partitions": [0, 1], "records": 2},))
    (late,) = report.finding(Check.INVERSIONS).samples
    assert late == {"key": "late", "partition": 2, "first_offset": 1, "records": 1, "worst_ms": 4000}
    duplicates = report.finding(Check.DUPLICATES)
    assert (duplicates.found, duplicates.samples) == (1, ({"event": "7", "places": ["0:7", "0:101"]},))
    skew = report.finding(Check.SKEW)
    assert [each["partition"] for each in skew.samples] == [0]
    assert "key hot alone has 96% of all records" in skew.remarks


def test_transactions_are_neither_gaps_nor_duplicates(audit: Any, broker: RunningBroker, make_topic: MakeTopic) -> None:
    topic = make_topic(1)
    producer = Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": topic})
    producer.init_transactions(60)
    for attempt in range(2):
        producer.begin_transaction()
        for number in range(10):
            producer.produce(topic, b"{}", b"key", headers=[("event", str(number).encode())])
        producer.flush(60)
        if attempt:
            producer.commit_transaction(60)
        else:
            producer.abort_transaction(60)
    with Cluster(ClientSettings(broker.bootstrap)) as cluster:
        # A commit is answered when it is decided; readers see the records a moment later.
        end = {TopicPartition(topic, 0): LATEST}
        eventually(lambda: all(at.offset == 22 for at in cluster.list_offsets(end, Isolation.READ_COMMITTED).values()))
    report: Report = audit(topic, event_id=EventId.parse("header:event"))
    assert report.records == 10
    assert report.ok
    assert all(finding.found == 0 for finding in report.findings)
    by_producer: Report = audit(topic)
    assert by_producer.finding(Check.DUPLICATES).found == 0
    assert by_producer.finding(Check.DUPLICATES).remarks == ()


def test_missing_offsets_are_named(spark: SparkSession) -> None:
    offsets = [*range(100), *range(103, 9000), *range(9001, 9500)]
    frame = spark.createDataFrame([Row(partition=0, offset=offset) for offset in offsets])
    questions = Questions(Bootstrap("nowhere"), "orders")
    found = running._gaps(frame, questions, {0: (0, 9600)}, compacted=False)
    assert (found.found, found.clean) == (104, False)
    assert [(each["first_offset"], each["end_offset"]) for each in found.samples] == [
        (100, 103),
        (9000, 9001),
        (9500, 9600),
    ]
    compacted = running._gaps(frame, questions, {0: (0, 9600)}, compacted=True)
    assert (compacted.found, compacted.clean) == (104, True)


def test_a_sequence_number_that_comes_twice_is_a_duplicate(spark: SparkSession) -> None:
    def row(partition: int, offset: int, producer: int, sequence: int) -> Row:
        return Row(partition=partition, offset=offset, producerId=producer, producerEpoch=0, sequence=sequence)

    rows = [row(0, 0, 7, 0), row(0, 1, 7, 1), row(0, 2, 7, 0), row(1, 0, 7, 0), row(0, 3, -1, -1), row(0, 4, -1, -1)]
    found = running._duplicates(spark.createDataFrame(rows), Questions(Bootstrap("nowhere"), "orders"))
    assert found.found == 1
    assert found.samples == ({"producerId": 7, "producerEpoch": 0, "sequence": 0, "places": ["0:0", "0:2"]},)
    assert found.remarks == ("2 records of producers without idempotence cannot be judged: name their event id",)


def test_the_command_reports_and_exits_for_scripts(
    spark: SparkSession, broker: RunningBroker, put: Produce, make_topic: MakeTopic
) -> None:
    def run(*arguments: str) -> Result:
        return CliRunner(env={"CORDWOOD_BOOTSTRAP": broker.bootstrap}).invoke(app, ["audit", *arguments])

    topic = make_topic(2)
    put(topic, [event("a", 1, 0), event("a", 2, 1)])
    told = run(topic)
    assert told.exit_code == ExitCode.PROBLEM_FOUND
    assert "verdict: failed by split-keys" in told.stdout
    assert "key=a, partitions=[0, 1], records=2" in told.stdout
    lenient = run(topic, "--fail-on", "gaps", "--json")
    assert lenient.exit_code == ExitCode.DONE
    report = json.loads(lenient.stdout)
    assert (report["ok"], report["records"], report["findings"][0]["found"]) == (True, 2, 1)
    assert run("no-such-topic-here").exit_code == ExitCode.NOT_FOUND
    assert run(topic, "--event-id", "body:id").exit_code == ExitCode.USAGE
    assert run(topic, "--fail-on", "weather").exit_code == ExitCode.USAGE
    assert run(topic, "--bootstrap-server", "a..b:9092").exit_code == ExitCode.USAGE


@pytest.mark.parametrize("text", ["id", "header:", "value:id", ""])
def test_an_event_id_has_a_kind_and_a_name(text: str) -> None:
    with pytest.raises(BadQuestion, match="header:NAME or json:PATH"):
        EventId.parse(text)
