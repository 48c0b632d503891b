"""Batch reads give the records of the log, however they were written and whatever part is asked for."""

import datetime
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka import TopicPartition as Position
from confluent_kafka.admin import AdminClient, NewTopic
from pyspark.sql import Row, SparkSession
from pyspark.sql.types import StructType
from tests.broker_process import BrokerProcess
from tests.conftest import MakeTopic, RunningBroker
from tests.deadline import eventually
from tests.spark.conftest import Load, Produce, Record, numbered, numbers, produce

from cordwood.client.cluster import Cluster
from cordwood.client.settings import ClientSettings
from cordwood.model.identifiers import TopicPartition

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")

FOR_EVER = {"retention.ms": "-1"}
"""Settings for records with old timestamps."""


@pytest.mark.landing
def test_rows_are_those_of_sparks_kafka_source(load: Load, put: Produce, make_topic: MakeTopic) -> None:
    topic = make_topic(2, **FOR_EVER)
    put(
        topic,
        [
            Record(b"v", b"k", 0, 1_700_000_000_123, [("a", b"1"), ("a", None), ("ü", b"")]),
            Record(None, None, 0, 1_700_000_000_124),
            Record(b"", b"", 1, 1_700_000_000_125),
        ],
    )
    frame = load(topic, includeHeaders="true")
    kinds = StructType.fromDDL(
        "key binary, value binary, topic string, partition int, offset bigint, timestamp timestamp,"
        " timestampType int, headers array<struct<key: string, value: binary>>"
    )
    assert frame.schema == kinds
    assert load(topic).columns == frame.columns[:-1]
    rows = frame.orderBy("partition", "offset").collect()

    def moment(milliseconds: int) -> datetime.datetime:
        return datetime.datetime.fromtimestamp(milliseconds / 1000)

    headers = [Row(key="a", value=b"1"), Row(key="a", value=None), Row(key="ü", value=b"")]
    assert [tuple(row) for row in rows] == [
        (b"k", b"v", topic, 0, 0, moment(1_700_000_000_123), 0, headers),
        (None, None, topic, 0, 1, moment(1_700_000_000_124), 0, []),
        (b"", b"", topic, 1, 0, moment(1_700_000_000_125), 0, []),
    ]


def test_every_codec_in_one_log(load: Load, broker: RunningBroker, topic: str) -> None:
    for index, codec in enumerate(CODECS):
        batch = numbered(index * 1000, (index + 1) * 1000)
        produce(broker.bootstrap, topic, batch, **{"compression.type": codec})
    assert numbers(load(topic)) == list(range(5000))


def test_records_come_in_offset_order_within_their_partition(load: Load, put: Produce, topic: str) -> None:
    put(topic, numbered(0, 3000))
    frame = load(topic, minPartitions=3)
    assert frame.rdd.getNumPartitions() == 3
    pieces = frame.select("offset").rdd.glom().collect()
    assert [row["offset"] for piece in pieces for row in piece] == list(range(3000))
    assert all(pieces)


def test_the_broker_says_when_it_appended(load: Load, put: Produce, make_topic: MakeTopic) -> None:
    topic = make_topic(**{"message.timestamp.type": "LogAppendTime"})
    put(topic, [Record(b"x", timestamp_ms=1000)])
    (row,) = load(topic).select("timestamp", "timestampType").collect()
    assert row["timestampType"] == 1
    assert row["timestamp"].year >= 2024


def test_a_schema_with_fewer_columns_reads_fewer(load: Load, put: Produce, topic: str) -> None:
    put(topic, [Record(b"v1", b"k1"), Record(b"v2", b"k2")])
    frame = load(topic, schema="offset long, value binary")
    assert frame.columns == ["offset", "value"]
    assert [tuple(row) for row in frame.orderBy("offset").collect()] == [(0, b"v1"), (1, b"v2")]
    assert load(topic, schema="partition int").count() == 2


def test_a_schema_that_does_not_fit_says_why(load: Load, topic: str) -> None:
    with pytest.raises(Exception, match=r"valeu is not a column of format cordwood\. Did you mean value"):
        load(topic, schema="valeu binary").count()
    with pytest.raises(Exception, match="offset is bigint, not int"):
        load(topic, schema="offset int").count()
    with pytest.raises(Exception, match="value is null where a record has none: leave out NOT NULL"):
        load(topic, schema="value binary not null, offset long not null").count()
    with pytest.raises(Exception, match="includeHeaders=true"):
        load(topic, schema="headers array<struct<key: string, value: binary>>").count()


def test_wrong_options_are_said_at_load(load: Load, topic: str) -> None:
    with pytest.raises(Exception, match=r"startingoffset is not an option\. Did you mean startingOffsets"):
        load(topic, startingOffset="earliest")
    with pytest.raises(Exception, match="startingOffsets=latest leaves a batch read nothing to read"):
        load(topic, startingOffsets="latest").count()


def test_a_topic_that_does_not_exist_is_an_error_that_knows_better(load: Load, topic: str) -> None:
    with pytest.raises(Exception, match=f"{topic}x does not exist on .*Did you mean {topic}"):
        load(f"{topic}x").count()
    with pytest.raises(Exception, match=f"assign: {topic}-7 does not exist"):
        load(assign=f'{{"{topic}": [0, 7]}}').count()


def test_nothing_is_read_from_nothing(load: Load, topic: str) -> None:
    assert load(topic).count() == 0
    assert load(subscribePattern="no such topic").count() == 0


def test_a_thousand_partitions(load: Load, put: Produce, make_topic: MakeTopic) -> None:
    topic = make_topic(1000)
    put(topic, [record for index in range(1000) for record in numbered(index * 3, index * 3 + 3, partition=index)])
    frame = load(topic)
    assert frame.rdd.getNumPartitions() <= 8
    assert numbers(frame) == list(range(3000))


def test_several_topics_a_pattern_and_assigned_partitions(load: Load, put: Produce, make_topic: MakeTopic) -> None:
    one, two = make_topic(2), make_topic()
    put(one, [*numbered(0, 10), *numbered(10, 20, partition=1)])
    put(two, numbered(20, 30))
    assert numbers(load(f"{one}, {two}")) == list(range(30))
    assert numbers(load(subscribePattern=f"({one}|{two})")) == list(range(30))
    assert numbers(load(subscribePattern=one[:-1])) == []
    assert numbers(load(assign=f'{{"{one}": [1], "{two}": [0]}}')) == list(range(10, 30))


def test_internal_topics_match_no_pattern_unless_asked_for(load: Load, broker: RunningBroker, topic: str) -> None:
    with Cluster(ClientSettings(broker.bootstrap)) as cluster:
        cluster.commit("somebody", {TopicPartition(topic, 0): 0})
    assert load(subscribePattern="__consumer_.*").count() == 0
    assert load(subscribePattern="__consumer_.*", **{"kafka.exclude.internal.topics": "false"}).count() > 0


@pytest.mark.landing
def test_from_offsets_to_offsets(load: Load, put: Produce, make_topic: MakeTopic) -> None:
    topic = make_topic(2)
    put(topic, [*numbered(0, 10), *numbered(10, 20, partition=1)])
    start = f'{{"{topic}": {{"0": 7, "1": -2}}}}'
    end = f'{{"{topic}": {{"0": -1, "1": 2}}}}'
    assert numbers(load(topic, startingOffsets=start, endingOffsets=end)) == [7, 8, 9, 10, 11]
    with pytest.raises(Exception, match=rf"it says nothing about {topic} \[1\]"):
        load(topic, startingOffsets=f'{{"{topic}": {{"0": 7}}}}').count()
    with pytest.raises(Exception, match=f"{topic}-0: offsets 10 to 98 .*it ends at 10"):
        load(topic, endingOffsets=f'{{"{topic}": {{"0": 99, "1": 1}}}}').count()
    beyond = load(topic, endingOffsets=f'{{"{topic}": {{"0": 99, "1": 1}}}}', failOnDataLoss="false")
    assert numbers(beyond) == list(range(11))


def test_from_time_to_time(load: Load, put: Produce, make_topic: MakeTopic) -> None:
    topic = make_topic(**FOR_EVER)
    put(topic, [record._replace(timestamp_ms=1000 + 10 * index) for index, record in enumerate(numbered(0, 10))])
    assert numbers(load(topic, startingTimestamp=1035, endingTimestamp=1070)) == [4, 5, 6]
    by_partition = {
        "startingOffsetsByTimestamp": f'{{"{topic}": {{"0": 1050}}}}',
        "endingOffsetsByTimestamp": f'{{"{topic}": {{"0": 99999}}}}',
    }
    assert numbers(load(topic, **by_partition)) == [5, 6, 7, 8, 9]
    with pytest.raises(Exception, match=rf"startingTimestamp: no record is as late as that in {topic} \[0\]"):
        load(topic, startingTimestamp=99999).count()
    assert load(topic, startingTimestamp=99999, startingOffsetsByTimestampStrategy="latest").count() == 0


def test_from_where_a_group_stands(load: Load, put: Produce, broker: RunningBroker, make_topic: MakeTopic) -> None:
    topic = make_topic(2)
    put(topic, [*numbered(0, 10), *numbered(10, 20, partition=1)])
    with Cluster(ClientSettings(broker.bootstrap)) as cluster:
        cluster.commit(f"billing-{topic}", {TopicPartition(topic, 0): 8})
    assert numbers(load(topic, startingOffsets="group", group=f"billing-{topic}")) == [8, 9, *range(10, 20)]


def test_filters_reach_the_source_and_change_no_result(
    spark: SparkSession, load: Load, put: Produce, make_topic: MakeTopic
) -> None:
    topic = make_topic(3, **FOR_EVER)
    for index in range(3):
        first = index * 100
        # Times that do not grow with offsets.
        times = [1_000_000 + (number * 37 % 100) * 1000 for number in range(100)]
        records = numbered(first, first + 100, partition=index)
        put(topic, [record._replace(timestamp_ms=time) for record, time in zip(records, times, strict=True)])
    filters = (
        "partition = 1 AND offset >= 10 AND offset < 20",
        "partition <> 1 AND offset IN (3, 5)",
        "timestamp >= '1970-01-01 00:17:40' AND timestamp < '1970-01-01 00:17:50'",
        "timestamp = '1970-01-01 00:17:40' AND partition > 0",
        f"topic = '{topic}' AND (offset < 3 OR offset > 97) AND key IS NULL",
        "topic = 'another'",
        "offset > 5000",
    )
    pushdown = "spark.sql.python.filterPushdown.enabled"
    frame = load(topic)
    for condition in filters:
        pushed = numbers(frame.where(condition))
        spark.conf.set(pushdown, "false")
        try:
            assert numbers(load(topic).where(condition)) == pushed, condition
        finally:
            spark.conf.set(pushdown, "true")
    plan = frame.where("offset > 3 AND partition = 0")._jdf.queryExecution().executedPlan().toString()
    assert "Filter (" not in plan
    assert numbers(frame.where(filters[0])) == list(range(110, 120))


def test_a_compacted_log_has_gaps_and_has_lost_nothing(spark: SparkSession, tmp_path: Path) -> None:
    settings = {"log.cleaner.backoff.ms": "50", "log.retention.check.interval.ms": "50"}
    with BrokerProcess(tmp_path / "data", settings=settings) as process:
        admin = AdminClient({"bootstrap.servers": process.bootstrap})
        config = {"cleanup.policy": "compact", "segment.bytes": "2000", "min.cleanable.dirty.ratio": "0.01"}
        admin.create_topics([NewTopic("prices", 1, 1, config=config)])["prices"].result(120)
        updates = [Record(f"{number}".encode(), f"key {number % 7}".encode()) for number in range(300)]
        produce(process.bootstrap, "prices", updates, **{"batch.num.messages": 1})
        with Cluster(ClientSettings(process.bootstrap)) as cluster:
            partition = TopicPartition("prices", 0)
            eventually(lambda: cluster.fetch(partition, 0).base > 0, what="compaction")
        read = spark.read.format("cordwood").option("kafka.bootstrap.servers", process.bootstrap)
        rows = read.option("subscribe", "prices").load().select("offset", "key", "value").collect()
        assert len(rows) < 300
        assert all(row["offset"] == int(bytes(row["value"])) for row in rows)
        latest = {bytes(row["key"]): int(bytes(row["value"])) for row in sorted(rows, key=lambda row: row["offset"])}
        assert latest == {f"key {number % 7}".encode(): number for number in range(293, 300)}


@pytest.mark.landing
def test_transactions(load: Load, broker: RunningBroker, topic: str) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": f"tx-{topic}"})
    producer.init_transactions(60)

    def write(first: int, end: int) -> None:
        producer.begin_transaction()
        for number in range(first, end):
            producer.produce(topic, str(number), partition=0)
        producer.flush(60)

    write(0, 100)
    producer.commit_transaction(60)
    write(100, 200)
    producer.abort_transaction(60)
    write(200, 300)
    producer.commit_transaction(60)
    write(300, 400)
    committed = {"kafka.isolation.level": "read_committed"}
    assert numbers(load(topic)) == list(range(400))
    assert numbers(load(topic, **committed)) == [*range(100), *range(200, 300)]
    assert numbers(load(topic, minPartitions=7, **committed)) == [*range(100), *range(200, 300)]
    producer.commit_transaction(60)
    everything = [*range(100), *range(200, 400)]
    eventually(lambda: numbers(load(topic, **committed)) == everything, what="what was committed last is seen")


@pytest.mark.landing
def test_lost_records_are_an_error_that_says_which_or_are_skipped_as_told(
    load: Load, put: Produce, admin: AdminClient, topic: str
) -> None:
    put(topic, numbered(0, 50))
    admin.delete_records([Position(topic, 0, 20)])
    eventually(lambda: load(topic).count(), to_be=30, what="records deleted")
    start = f'{{"{topic}": {{"0": 5}}}}'
    with pytest.raises(Exception, match="cannot read all that it should") as failed:
        load(topic, startingOffsets=start).count()
    said = str(failed.value)
    assert f"{topic}-0: offsets 5 to 19 (15 offsets)" in said
    assert "begins at 20 now" in said
    assert "The first record that is left has offset 20 and is of 20" in said
    assert "retention.ms=" in said
    assert "failOnDataLoss=false" in said
    assert numbers(load(topic, startingOffsets=start, failOnDataLoss="false")) == list(range(20, 50))
    # All that was asked for is gone, and no more than that.
    until = {"startingOffsets": start, "endingOffsets": f'{{"{topic}": {{"0": 10}}}}'}
    assert numbers(load(topic, failOnDataLoss="false", **until)) == []
    with pytest.raises(Exception, match="offsets 5 to 9 \\(5 offsets\\)"):
        load(topic, **until).count()
    assert load(topic, **{**until, "endingOffsets": start}).count() == 0, "nothing was asked for"


def test_a_loss_is_told_whatever_time_the_first_record_says_that_is_left(
    load: Load, put: Produce, admin: AdminClient, make_topic: MakeTopic
) -> None:
    """Producers that count microseconds write such times."""
    topic = make_topic(**FOR_EVER, **{"message.timestamp.after.max.ms": str(2**63 - 1)})
    put(topic, [Record(b"0"), Record(b"1", timestamp_ms=1_700_000_000_000_000)])
    admin.delete_records([Position(topic, 0, 1)])
    eventually(lambda: load(topic).count(), to_be=1, what="records deleted")
    start = f'{{"{topic}": {{"0": 0}}}}'
    with pytest.raises(Exception, match="is left has offset 1 and is of 1700000000000000 ms"):
        load(topic, startingOffsets=start).count()
    assert load(topic, startingOffsets=start, failOnDataLoss="false").count() == 1


def test_sql_and_temporary_views(spark: SparkSession, put: Produce, topic: str, broker: RunningBroker) -> None:
    put(topic, numbered(0, 5))
    spark.sql(
        "CREATE OR REPLACE TEMPORARY VIEW records_of_a_log USING cordwood"
        f" OPTIONS (`kafka.bootstrap.servers` '{broker.bootstrap}', subscribe '{topic}')"
    )
    number = "CAST(CAST(value AS STRING) AS INT)"
    (row,) = spark.sql(f"SELECT count(*) AS many, max({number}) AS most FROM records_of_a_log").collect()
    assert (row["many"], row["most"]) == (5, 4)
