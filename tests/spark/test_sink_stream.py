"""Streaming writes: each micro-batch once, also when Spark repeats it, and nothing of a failed one."""

import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyspark.errors import StreamingQueryException
from tests.conftest import MakeTopic, RunningBroker
from tests.deadline import eventually
from tests.spark.conftest import Load, Produce, numbered
from tests.spark.sink_stories import (
    Lines,
    committed,
    families,
    forget_commit,
    query_id,
    run_to_end,
    values,
    write,
    write_stream,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery


@pytest.mark.landing
def test_a_micro_batch_that_spark_repeats_is_not_written_again_even_with_other_rows(
    spark: "SparkSession", broker: RunningBroker, make_topic: MakeTopic, tmp_path: Path
) -> None:
    topic, checkpoint, lines = make_topic(partitions=2), tmp_path / "checkpoint", Lines(tmp_path / "lines")
    for batch in range(2):
        lines.add([f"{batch}-{row}" for row in range(10)])
    run_to_end(write_stream(lines.stream(spark), broker.bootstrap, topic, checkpoint))
    expected = sorted(f"{batch}-{row}" for batch in range(2) for row in range(10))
    assert values(committed(broker.bootstrap, topic, 2)) == expected
    family = families(broker.bootstrap)[query_id(checkpoint)]
    assert (family.last_batch_id, family.joined_slots) == (1, 0)

    forget_commit(checkpoint, 1)
    (lines.directory / "000001.txt").write_text("something else\nentirely\n")
    lines.add(["new"])
    run_to_end(write_stream(lines.stream(spark), broker.bootstrap, topic, checkpoint))
    assert values(committed(broker.bootstrap, topic, 2)) == sorted([*expected, "new"])


def test_a_checkpoint_that_is_older_than_the_output_is_refused(
    spark: "SparkSession", broker: RunningBroker, make_topic: MakeTopic, tmp_path: Path
) -> None:
    topic, checkpoint, lines = make_topic(), tmp_path / "checkpoint", Lines(tmp_path / "lines")
    lines.add(["a"])
    run_to_end(write_stream(lines.stream(spark), broker.bootstrap, topic, checkpoint))
    backup = tmp_path / "backup"
    shutil.copytree(checkpoint, backup)
    for text in ("b", "c"):
        lines.add([text])
    run_to_end(write_stream(lines.stream(spark), broker.bootstrap, topic, checkpoint))
    restored = write_stream(lines.stream(spark), broker.bootstrap, topic, backup)
    with pytest.raises(StreamingQueryException, match="older than batch 2"):
        restored.awaitTermination(600)
    assert values(committed(broker.bootstrap, topic)) == ["a", "b", "c"]


def test_without_its_checkpoint_a_query_is_a_new_one_and_writes_again(
    spark: "SparkSession", broker: RunningBroker, make_topic: MakeTopic, tmp_path: Path
) -> None:
    topic, lines = make_topic(), Lines(tmp_path / "lines")
    lines.add(["a"])
    for name in ("one", "two"):
        run_to_end(write_stream(lines.stream(spark), broker.bootstrap, topic, tmp_path / name, family="mine"))
        assert f"mine.{query_id(tmp_path / name)}" in families(broker.bootstrap)
    assert values(committed(broker.bootstrap, topic)) == ["a", "a"]


def test_a_query_that_fails_leaves_nothing_visible_and_nothing_open(
    spark: "SparkSession", broker: RunningBroker, make_topic: MakeTopic, tmp_path: Path
) -> None:
    topic, checkpoint, lines = make_topic(), tmp_path / "checkpoint", Lines(tmp_path / "lines")
    lines.add([str(row) for row in range(100)])

    def poisoned(wrong: str) -> "DataFrame":
        check = f"if(value = '{wrong}', raise_error('poison'), value) value"
        return lines.stream(spark).repartition(2).selectExpr(check)

    timeout = {"kafka.transaction.timeout.ms": 2000}
    failing = write_stream(poisoned("50"), broker.bootstrap, topic, checkpoint, **timeout)
    with pytest.raises(StreamingQueryException, match="poison"):
        failing.awaitTermination(600)
    assert committed(broker.bootstrap, topic) == []

    def open_slots() -> int:
        family = families(broker.bootstrap).get(query_id(checkpoint))
        return 0 if family is None else family.open_slots

    # All slots end at once, except that of a task that joined before it learned of the stop: that one times out.
    eventually(lambda: open_slots() == 0, within_s=120, what="nothing is open")
    run_to_end(write_stream(poisoned("nothing"), broker.bootstrap, topic, checkpoint))
    assert values(committed(broker.bootstrap, topic)) == sorted(str(row) for row in range(100))


@pytest.mark.landing
def test_records_go_from_topic_to_topic_once(
    broker: RunningBroker, make_topic: MakeTopic, put: Produce, load_stream: Load, tmp_path: Path
) -> None:
    origin, target = make_topic(partitions=2), make_topic(partitions=3)
    for first in (0, 300):
        put(origin, [*numbered(first, first + 150), *numbered(first + 150, first + 300, partition=1)])
        frame = load_stream(origin, startingOffsets="earliest", maxOffsetsPerTrigger=200)
        frame = frame.selectExpr("key", "concat('x', cast(value as string)) value")
        run_to_end(write_stream(frame, broker.bootstrap, target, tmp_path / "checkpoint"))
    found = values(committed(broker.bootstrap, target, 3))
    assert found == sorted(f"x{number}" for number in range(600))


def counting(spark: "SparkSession", broker: RunningBroker, topic: str, tmp_path: Path, mode: str) -> "StreamingQuery":
    lines = Lines(tmp_path / "lines")
    lines.add(["a"])
    lines.add(["a", "b"])
    counts = lines.stream(spark).groupBy("value").count()
    writer = counts.selectExpr("value key", "concat(value, '=', count) value").writeStream.outputMode(mode)
    writer = writer.format("cordwood").option("topic", topic).trigger(availableNow=True)
    writer = writer.option("kafka.bootstrap.servers", broker.bootstrap)
    return writer.option("checkpointLocation", str(tmp_path / "checkpoint")).start()


def test_in_complete_mode_the_whole_result_is_appended_every_time(
    spark: "SparkSession", broker: RunningBroker, make_topic: MakeTopic, tmp_path: Path
) -> None:
    topic = make_topic()
    run_to_end(counting(spark, broker, topic, tmp_path, "complete"))
    assert values(committed(broker.bootstrap, topic)) == ["a=1", "a=2", "b=1"]


def test_update_mode_is_refused_by_spark_for_every_sink_in_python(
    spark: "SparkSession", broker: RunningBroker, make_topic: MakeTopic, tmp_path: Path
) -> None:
    with pytest.raises(StreamingQueryException, match="does not support Update mode"):
        counting(spark, broker, make_topic(), tmp_path, "update").awaitTermination(600)


def test_for_each_batch_writes_once_when_batches_are_numbered(
    spark: "SparkSession", broker: RunningBroker, make_topic: MakeTopic, tmp_path: Path
) -> None:
    one, two, checkpoint = make_topic(), make_topic(), tmp_path / "checkpoint"
    lines = Lines(tmp_path / "lines")
    lines.add(["a", "b"])

    def write_both(frame: "DataFrame", batch_id: int) -> None:
        for topic in (one, two):
            write(frame, broker.bootstrap, topic, family=f"each-{topic}", batchId=batch_id)

    for _ in range(2):
        writer = lines.stream(spark).writeStream.foreachBatch(write_both).trigger(availableNow=True)
        run_to_end(writer.option("checkpointLocation", str(checkpoint)).start())
        forget_commit(checkpoint, 0)
    for topic in (one, two):
        assert values(committed(broker.bootstrap, topic)) == ["a", "b"]
