"""Batch writes: every column arrives, all rows or none become visible, and impossible rows are refused on the
driver."""

from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Producer
from pyspark.errors import AnalysisException, PySparkException
from tests.conftest import MakeTopic, RunningBroker
from tests.interop.confluent_clients import produce_all
from tests.spark.conftest import Load
from tests.spark.sink_stories import committed, families, values, write

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@pytest.mark.landing
def test_every_column_arrives(spark: "SparkSession", broker: RunningBroker, make_topic: MakeTopic, load: Load) -> None:
    topic = make_topic(partitions=3)
    frame = spark.sql(
        """
        select * from values
          ('a', 'one', array(named_struct('key', 'h', 'value', X'0102'), named_struct('key', 'i', 'value', null)),
           2, timestamp_millis(1700000000123)),
          (null, '', array(), 0, timestamp_millis(1700000000456)),
          ('c', null, null, 1, timestamp_millis(0))
          as t(key, value, headers, partition, timestamp)
        """
    )
    write(frame, broker.bootstrap, topic)
    found = {message.partition(): message for message in committed(broker.bootstrap, topic, 3)}
    assert [found[index].key() for index in range(3)] == [None, b"c", b"a"]
    assert [found[index].value() for index in range(3)] == [b"", None, b"one"]
    assert found[2].headers() == [("h", b"\x01\x02"), ("i", None)]
    assert found[0].headers() is None
    assert [found[index].timestamp()[1] for index in range(3)] == [1700000000456, 0, 1700000000123]
    rows = load(topic, includeHeaders=True).orderBy("partition").collect()
    assert [row["value"] for row in rows] == [b"", None, b"one"]
    assert [header["key"] for header in rows[2]["headers"]] == ["h", "i"]


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_every_codec_is_read_back_by_an_ordinary_consumer(
    spark: "SparkSession", broker: RunningBroker, make_topic: MakeTopic, codec: str
) -> None:
    topic = make_topic(partitions=2)
    frame = spark.range(2000).selectExpr("cast(id as string) value", "repeat('k', 10) key")
    write(frame, broker.bootstrap, topic, **{"kafka.compression.type": codec})
    found = committed(broker.bootstrap, topic, 2)
    assert values(found) == sorted(str(number) for number in range(2000))
    assert len({message.partition() for message in found}) == 1


def test_keys_go_where_other_clients_put_them(
    spark: "SparkSession", broker: RunningBroker, make_topic: MakeTopic
) -> None:
    ours, theirs = make_topic(partitions=7), make_topic(partitions=7)
    keys = [f"key-{number}" for number in range(300)]
    frame = spark.createDataFrame([(key, key) for key in keys], "key string, value string")
    write(frame, broker.bootstrap, ours)
    producer = Producer({"bootstrap.servers": broker.bootstrap, "partitioner": "murmur2"})
    produce_all(producer, ({"topic": theirs, "key": key, "value": key} for key in keys))
    homes = [
        {message.key(): message.partition() for message in committed(broker.bootstrap, topic, 7)}
        for topic in (ours, theirs)
    ]
    assert homes[0] == homes[1]
    assert len(homes[0]) == 300


def test_rows_name_their_topics_and_the_option_wins(
    spark: "SparkSession", broker: RunningBroker, make_topic: MakeTopic
) -> None:
    one, two, three = make_topic(), make_topic(), make_topic()
    frame = spark.createDataFrame([("x", one), ("y", two), ("z", one)], "value string, topic string")
    write(frame, broker.bootstrap)
    assert values(committed(broker.bootstrap, one)) == ["x", "z"]
    assert values(committed(broker.bootstrap, two)) == ["y"]
    write(frame, broker.bootstrap, three)
    assert values(committed(broker.bootstrap, three)) == ["x", "y", "z"]


def test_what_was_read_can_be_written_back(
    spark: "SparkSession", broker: RunningBroker, make_topic: MakeTopic, load: Load
) -> None:
    origin, copy = make_topic(partitions=2), make_topic(partitions=2)
    write(spark.range(50).selectExpr("cast(id as string) key", "cast(id as string) value"), broker.bootstrap, origin)
    write(load(origin), broker.bootstrap, copy)
    before, after = (
        {(row["key"], row["value"], row["partition"], row["timestamp"]) for row in load(topic).collect()}
        for topic in (origin, copy)
    )
    assert before == after
    assert len(after) == 50


@pytest.mark.landing
def test_a_write_that_fails_leaves_nothing_and_a_family_that_is_forgotten(
    spark: "SparkSession", broker: RunningBroker, make_topic: MakeTopic
) -> None:
    topic = make_topic()
    frame = spark.range(0, 1000, 1, 2).selectExpr("if(id = 999, raise_error('no'), cast(id as string)) value")
    before = set(families(broker.bootstrap))
    with pytest.raises(PySparkException):
        write(frame, broker.bootstrap, topic, family="failing")
    assert committed(broker.bootstrap, topic) == []
    (name,) = [name for name in families(broker.bootstrap).keys() - before if name.startswith("failing.")]
    left = families(broker.bootstrap)[name]
    assert left.forgotten
    assert left.open_slots == 0, "whoever reads the topic would wait for them"


def test_a_rerun_writes_again_unless_the_batch_has_a_number(
    spark: "SparkSession", broker: RunningBroker, make_topic: MakeTopic
) -> None:
    plain, numbered = make_topic(), make_topic()
    frame = spark.createDataFrame([("x",), ("y",)], "value string")
    for _ in range(2):
        write(frame, broker.bootstrap, plain)
    assert values(committed(broker.bootstrap, plain)) == ["x", "x", "y", "y"]
    for batch_id in (7, 7, 8, 8):
        write(frame, broker.bootstrap, numbered, family=f"daily-{numbered}", batchId=batch_id)
    assert values(committed(broker.bootstrap, numbered)) == ["x", "x", "y", "y"]
    with pytest.raises(PySparkException, match="older than batch 8"):
        write(frame, broker.bootstrap, numbered, family=f"daily-{numbered}", batchId=7)
    write(frame, broker.bootstrap, numbered, family=f"daily-{numbered}", batchId=7, olderBatches="skip")
    assert len(committed(broker.bootstrap, numbered)) == 4


def test_without_exactly_once_rows_are_written_as_they_come(
    spark: "SparkSession", broker: RunningBroker, make_topic: MakeTopic
) -> None:
    topic = make_topic(partitions=2)
    frame = spark.range(100).selectExpr("cast(id as string) value")
    write(frame, broker.bootstrap, topic, exactlyOnce=False)
    write(frame, broker.bootstrap, topic, exactlyOnce=False, **{"kafka.acks": "1"})
    write(frame, broker.bootstrap, topic, exactlyOnce="task")
    assert len(committed(broker.bootstrap, topic, 2)) == 300


def test_a_frame_without_rows_writes_nothing(
    spark: "SparkSession", broker: RunningBroker, make_topic: MakeTopic
) -> None:
    topic = make_topic()
    write(spark.createDataFrame([], "value string"), broker.bootstrap, topic)
    assert committed(broker.bootstrap, topic) == []


def _frame(spark: "SparkSession", expression: str) -> "DataFrame":
    return spark.range(1).selectExpr(*expression.split("; "))


@pytest.mark.parametrize(
    ("expression", "options", "message"),
    [
        ("id", {"topic": "t"}, "Column 'id' means nothing to a record"),
        ("id as value", {"topic": "t"}, "value attribute unsupported type bigint"),
        ("'x' value", {}, "topic option required when no 'topic' attribute is present"),
    ],
)
def test_what_cannot_be_is_refused_on_the_driver(
    spark: "SparkSession", broker: RunningBroker, expression: str, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(AnalysisException) as caught:
        write(_frame(spark, expression), broker.bootstrap, **options)
    assert message in str(caught.value)


@pytest.mark.parametrize(("option", "value"), [("kafka.partitioner.class", "x"), ("kafka.acks", "1")])
def test_an_option_without_effect_keeps_no_row_from_being_written(
    spark: "SparkSession", broker: RunningBroker, make_topic: MakeTopic, option: str, value: str
) -> None:
    topic = make_topic()
    write(_frame(spark, "'x' value"), broker.bootstrap, topic, **{option: value})
    assert len(committed(broker.bootstrap, topic)) == 1


def test_a_topic_is_not_overwritten(spark: "SparkSession", broker: RunningBroker, topic: str) -> None:
    writer = spark.range(1).selectExpr("'x' value").write.format("cordwood")
    writer = writer.option("kafka.bootstrap.servers", broker.bootstrap).option("topic", topic)
    with pytest.raises(AnalysisException, match=r"write with mode\('append'\)"):
        writer.mode("overwrite").save()


@pytest.mark.parametrize(
    ("expression", "message"),
    [
        ("'x' value; cast(null as string) topic", "null topic present in the data. Use the topic option"),
        ("'x' value; '{topic}' topic; 1 partition", "has the partitions 0 to 0"),
        ("'x' value; '{topic}' topic; timestamp_millis(-1) timestamp", "time before 1970"),
    ],
)
def test_a_row_that_cannot_be_written_fails_the_write_and_says_why(
    spark: "SparkSession", broker: RunningBroker, topic: str, expression: str, message: str
) -> None:
    with pytest.raises(PySparkException) as caught:
        write(_frame(spark, expression.replace("{topic}", topic)), broker.bootstrap)
    assert message in str(caught.value)


def test_a_topic_that_is_not_there_is_created_as_for_other_producers(
    spark: "SparkSession", broker: RunningBroker, topic: str
) -> None:
    name = f"new-{topic}"
    write(spark.range(3).selectExpr("cast(id as string) value"), broker.bootstrap, name)
    assert values(committed(broker.bootstrap, name)) == ["0", "1", "2"]
