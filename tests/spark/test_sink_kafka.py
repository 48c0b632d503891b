"""The sink against an Apache Kafka, if one can be had: a transaction for each task, and a warning about the weaker
promise."""

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from benchmarks.kafka_peer import KafkaBroker, install_kafka
from benchmarks.maven import PeerUnavailable
from confluent_kafka.admin import AdminClient, NewTopic
from tests.conftest import await_topic
from tests.spark.sink_query import Query
from tests.spark.sink_stories import Lines, committed, forget_commit, run_to_end, values, write, write_stream

from cordwood.spark.sink import commits
from cordwood.spark.sink.options import Guarantee
from cordwood.spark.sink.protocol import SinkFailure

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PATIENT = {"kafka.delivery.timeout.ms": "300000"}


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaBroker]:
    try:
        jars = install_kafka()
    except PeerUnavailable as reason:
        pytest.skip(str(reason))
    settings = {"transaction.state.log.num.partitions": "1", "offsets.topic.num.partitions": "1"}
    with KafkaBroker(jars, tmp_path_factory.mktemp("kafka"), heap="256m", settings=settings) as broker:
        yield broker


def new_topic(kafka: KafkaBroker, name: str, partitions: int = 1) -> str:
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
    admin.create_topics([NewTopic(name, num_partitions=partitions, replication_factor=1)])[name].result(120)
    await_topic(admin, name, partitions)
    return name


def test_a_repeated_batch_writes_only_the_tasks_that_were_not_committed(
    kafka: KafkaBroker, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(commits, "_told_what_is_weaker", False)
    stream = Query(kafka.bootstrap, new_topic(kafka, "by-task"), **PATIENT)
    first, second = stream.task(0, 0, ["a"]), stream.task(0, 1, ["b"])
    assert first.guarantee is Guarantee.TASK
    assert stream.visible() == []
    with caplog.at_level(logging.WARNING):
        stream.commit(0, first)
    assert "only if a repeated batch computes the same rows in the same tasks" in caplog.text
    # The driver has died before it ended the second task.
    again = [stream.task(0, 0, ["a"]), stream.task(0, 1, ["b"])]
    assert [report.skipped_rows for report in again] == [1, 0]
    caplog.clear()
    stream.commit(0, *again)
    assert "only if a repeated batch" not in caplog.text, "once is enough"
    assert stream.visible() == ["a", "b"]
    with pytest.raises(SinkFailure, match="start the query again"):
        stream.commit(0, second)
    stream.commit(1, stream.task(1, 0, []), stream.task(1, 1, []))
    report = stream.task(2, 0, ["never"])
    stream.abort(2, report)
    stream.commit(2, stream.task(2, 0, ["c"]))
    assert stream.visible() == ["a", "b", "c"]


def test_spark_writes_to_kafka_in_batches_and_streams(
    spark: "SparkSession", kafka: KafkaBroker, tmp_path: Path
) -> None:
    batch, stream = new_topic(kafka, "batch", 2), new_topic(kafka, "stream", 2)
    frame = spark.range(0, 100, 1, 2).selectExpr("cast(id as string) key", "cast(id as string) value")
    write(frame, kafka.bootstrap, batch, **PATIENT)
    expected = sorted(str(number) for number in range(100))
    assert values(committed(kafka.bootstrap, batch, 2)) == expected

    lines, checkpoint = Lines(tmp_path / "lines"), tmp_path / "checkpoint"
    lines.add(expected[:50])
    lines.add(expected[50:])
    for _ in range(2):
        run_to_end(write_stream(lines.stream(spark), kafka.bootstrap, stream, checkpoint, **PATIENT))
        assert values(committed(kafka.bootstrap, stream, 2)) == expected
        forget_commit(checkpoint, 1)
