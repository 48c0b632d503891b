"""Spark's own Kafka connector against Cordwood: it reads the same records as our source, and its records can be
read."""

import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from benchmarks.maven import PeerUnavailable
from benchmarks.spark_connector import install_connector
from tests.conftest import MakeTopic, RunningBroker
from tests.spark.conftest import Load, Produce, Record, numbered
from tests.spark.streams import running

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


FOR_EVER = {"retention.ms": "-1"}
"""Settings for records with old timestamps."""


@pytest.fixture(scope="module", autouse=True)
def _connector() -> None:
    try:
        install_connector()
    except PeerUnavailable as reason:
        pytest.skip(str(reason))


def sorted_rows(frame: "DataFrame") -> list[Any]:
    return frame.orderBy("partition", "offset").collect()


def by_connector(spark: "SparkSession", broker: RunningBroker, topic: str, **options: str) -> "DataFrame":
    reader = spark.read.format("kafka").option("kafka.bootstrap.servers", broker.bootstrap).option("subscribe", topic)
    return reader.options(**options).load()


def records(count: int) -> list[Record]:
    return [
        Record(
            b"value %d" % number,
            b"key %d" % (number % 7),
            number % 3,
            1_700_000_000_000 + number,
            [("h", b"%d" % number)],
        )
        for number in range(count)
    ]


def test_both_sources_read_the_same_rows(
    spark: "SparkSession", broker: RunningBroker, load: Load, put: Produce, make_topic: MakeTopic
) -> None:
    topic = make_topic(3, **FOR_EVER)
    put(topic, [*records(500), Record(None, b"tombstone", 1), Record(b"no key", None, 2)])
    theirs = by_connector(spark, broker, topic, includeHeaders="true").where("headers is not null")
    ours = load(topic, includeHeaders="true")
    assert theirs.schema == ours.schema
    # A record without headers has null in the connector, and an empty list in our source.
    assert sorted_rows(theirs) == [row for row in sorted_rows(ours) if row["headers"]]
    assert sorted_rows(by_connector(spark, broker, topic)) == sorted_rows(load(topic))


def test_what_the_connector_writes_our_source_reads(
    spark: "SparkSession", broker: RunningBroker, load: Load, put: Produce, make_topic: MakeTopic
) -> None:
    source, target = make_topic(3, **FOR_EVER), make_topic(2)
    put(source, records(300))
    frame = load(source).select("key", "value")
    frame.write.format("kafka").option("kafka.bootstrap.servers", broker.bootstrap).option("topic", target).save()
    written = load(target).select("key", "value").collect()
    assert sorted(written) == sorted(frame.collect())


def test_the_connector_streams_from_and_to_cordwood(
    spark: "SparkSession", broker: RunningBroker, load: Load, put: Produce, make_topic: MakeTopic, tmp_path: Path
) -> None:
    source, target = make_topic(3, **FOR_EVER), make_topic(1, **FOR_EVER)
    put(source, records(300))
    stream = spark.readStream.format("kafka").option("kafka.bootstrap.servers", broker.bootstrap)
    stream = stream.option("subscribe", source).option("startingOffsets", "earliest")
    query = (
        stream.load()
        .select("key", "value")
        .writeStream.format("kafka")
        .option("kafka.bootstrap.servers", broker.bootstrap)
        .option("topic", target)
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .queryName(f"connector-{uuid.uuid4().hex[:8]}")
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination(120)
    assert query.exception() is None
    written = load(target).select("key", "value").collect()
    assert sorted(written) == sorted(load(source).select("key", "value").collect())


def test_a_query_moves_from_the_connector_to_our_source_and_back_with_its_checkpoint(
    spark: "SparkSession",
    broker: RunningBroker,
    load_stream: Load,
    put: Produce,
    make_topic: MakeTopic,
    tmp_path: Path,
) -> None:
    topic = make_topic(2)
    theirs = spark.readStream.format("kafka").option("kafka.bootstrap.servers", broker.bootstrap)
    theirs_frame = theirs.option("subscribe", topic).option("startingOffsets", "earliest").load()
    ours_frame = load_stream(topic, startingOffsets="earliest")
    for turn, frame in enumerate((theirs_frame, ours_frame, theirs_frame)):
        put(topic, [*numbered(turn * 10, turn * 10 + 5), *numbered(turn * 10 + 5, turn * 10 + 10, partition=1)])
        with running(frame, f"moves_{turn}", tmp_path, availableNow=True) as stream:
            stream.finish()
            assert stream.values() == list(range(turn * 10, turn * 10 + 10))


def test_a_query_that_wrote_with_the_connector_goes_on_with_our_sink_and_back(
    spark: "SparkSession", broker: RunningBroker, load: Load, put: Produce, make_topic: MakeTopic, tmp_path: Path
) -> None:
    source, target = make_topic(1), make_topic(1)
    for turn, word in enumerate(("kafka", "kafka", "cordwood", "kafka")):
        put(source, numbered(turn * 10, turn * 10 + 10))
        at = {"kafka.bootstrap.servers": broker.bootstrap}
        rows = spark.readStream.format(word).options(**at, subscribe=source, startingOffsets="earliest").load()
        writing = rows.select("value").writeStream.format(word).options(**at, topic=target)
        query = writing.option("checkpointLocation", str(tmp_path / "moved")).trigger(availableNow=True).start()
        query.awaitTermination(120)
        assert query.exception() is None
    written = load(target, **{"kafka.isolation.level": "read_committed"}).select("value").collect()
    assert sorted(int(row["value"]) for row in written) == list(range(40))


def test_a_query_begun_on_our_source_goes_on_with_the_connector_from_its_first_batch(
    spark: "SparkSession",
    broker: RunningBroker,
    load_stream: Load,
    put: Produce,
    make_topic: MakeTopic,
    tmp_path: Path,
) -> None:
    topic = make_topic(12)
    theirs = spark.readStream.format("kafka").option("kafka.bootstrap.servers", broker.bootstrap)
    theirs_frame = theirs.option("subscribe", topic).option("startingOffsets", "earliest").load()
    ours_frame = load_stream(topic, startingOffsets="earliest")
    for turn, frame in enumerate((ours_frame, theirs_frame, ours_frame)):
        put(
            topic,
            [record for part in range(12) for record in numbered(turn * 24 + 2 * part, turn * 24 + 2 * part + 2, part)],
        )
        with running(frame, f"begun_here_{turn}", tmp_path, availableNow=True) as stream:
            stream.finish()
            assert stream.values() == list(range(turn * 24, turn * 24 + 24))


def test_a_first_batch_that_was_interrupted_on_our_source_is_repeated_by_the_connector(
    spark: "SparkSession",
    broker: RunningBroker,
    load_stream: Load,
    put: Produce,
    make_topic: MakeTopic,
    tmp_path: Path,
) -> None:
    topic = make_topic(2)
    put(topic, [*numbered(0, 5), *numbered(5, 10, partition=1)])
    with running(load_stream(topic, startingOffsets="earliest"), "interrupted", tmp_path, availableNow=True) as stream:
        stream.finish()
    for path in (tmp_path / "commits").glob("*0*"):
        path.unlink()
    put(topic, numbered(10, 15))
    theirs = spark.readStream.format("kafka").option("kafka.bootstrap.servers", broker.bootstrap)
    theirs_frame = theirs.option("subscribe", topic).option("startingOffsets", "earliest").load()
    with running(theirs_frame, "repeated", tmp_path, availableNow=True) as stream:
        stream.finish()
        assert stream.values() == list(range(15))
