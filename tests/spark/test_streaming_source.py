"""Streams in real Spark: they follow the log, stop and go on, survive brokers, and show their progress as a group."""

import json
import os
import signal
import time
from contextlib import suppress
from pathlib import Path

import pytest
from confluent_kafka import TopicPartition as Position
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.listener import (
    QueryIdleEvent,
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
    StreamingQueryProgress,
)
from tests.broker_process import BrokerProcess
from tests.conftest import MakeTopic, RunningBroker, await_topic
from tests.deadline import eventually
from tests.spark.conftest import Load, Produce, numbered, produce
from tests.spark.streams import WITHIN_S, begun, running

import cordwood.spark
from cordwood.model.identifiers import TopicPartition


def test_a_query_follows_the_log_and_rests_when_there_is_nothing_new(
    load_stream: Load, put: Produce, topic: str, tmp_path: Path, broker: RunningBroker
) -> None:
    put(topic, numbered(0, 100))
    with running(load_stream(topic, startingOffsets="earliest"), "follows", tmp_path) as stream:
        stream.await_values(list(range(100)))
        put(topic, numbered(100, 150))
        stream.await_values(list(range(150)))
        at_rest = TopicPartition(topic, 0)
        # An idle query commits its finished positions, too, although no further batch comes.
        eventually(
            lambda: _position("spark-follows", at_rest, broker),
            to_be=150,
            within_s=WITHIN_S,
            what="progress of an idle query",
        )
        progress = stream.query.lastProgress
        assert progress is not None
        assert json.loads(progress.sources[0].endOffset) == {topic: {"0": 150}}
        assert json.loads(progress.sources[0].latestOffset) == {topic: {"0": 150}}
        batch = progress.batchId
        time.sleep(1)
        assert stream.query.lastProgress is not None
        assert stream.query.lastProgress.batchId == batch


def _position(group: str, partition: TopicPartition, broker: RunningBroker) -> int | None:
    standing = cordwood.spark.progress(group, broker.bootstrap).get(partition)
    return None if standing is None else standing.position


@pytest.mark.landing
def test_available_now_reads_what_is_there_in_limited_batches_and_ends(
    load_stream: Load, put: Produce, make_topic: MakeTopic, tmp_path: Path, broker: RunningBroker
) -> None:
    topic = make_topic(2)
    put(topic, [*numbered(0, 60), *numbered(60, 100, partition=1)])
    frame = load_stream(topic, startingOffsets="earliest", maxOffsetsPerTrigger=40, groupIdPrefix="team")
    with running(frame, "available", tmp_path, availableNow=True) as stream:
        stream.finish()
        assert stream.values() == list(range(100))
        sizes = [progress.numInputRows for progress in stream.query.recentProgress if progress.numInputRows]
        assert sizes == [40, 40, 20]
    assert {
        partition.partition: standing.position
        for partition, standing in cordwood.spark.progress("team-available", broker.bootstrap).items()
    } == {0: 60, 1: 40}
    put(topic, numbered(100, 105))
    with running(frame, "available_again", tmp_path, availableNow=True) as stream:
        stream.finish()
        assert stream.values() == [100, 101, 102, 103, 104]


class Watching(StreamingQueryListener):
    """Spark's reports on every query, as its UI shows them."""

    def __init__(self) -> None:
        self.told: list[StreamingQueryProgress] = []
        self.ended = 0

    def onQueryStarted(self, event: QueryStartedEvent) -> None:
        pass

    def onQueryProgress(self, event: QueryProgressEvent) -> None:
        self.told.append(event.progress)

    def onQueryIdle(self, event: QueryIdleEvent) -> None:
        pass

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:
        self.ended += 1


def test_a_listener_sees_rows_and_lag_of_every_batch_and_the_group_has_what_was_lost(
    spark: SparkSession,
    load_stream: Load,
    put: Produce,
    make_topic: MakeTopic,
    admin: AdminClient,
    tmp_path: Path,
    broker: RunningBroker,
) -> None:
    topic = make_topic(2)
    put(topic, [*numbered(0, 60), *numbered(60, 100, partition=1)])
    frame = load_stream(topic, startingOffsets="earliest", maxOffsetsPerTrigger=40, failOnDataLoss="false")
    watching = Watching()
    spark.streams.addListener(watching)
    try:
        with running(frame, "watched", tmp_path, availableNow=True) as stream:
            stream.finish()
        eventually(lambda: watching.ended, to_be=1, within_s=WITHIN_S, what="the end of the query")
        admin.delete_records([Position(topic, 0, 60)])[Position(topic, 0, 60)].result(120)
        put(topic, numbered(100, 110))
        admin.delete_records([Position(topic, 0, 65)])[Position(topic, 0, 65)].result(120)
        with running(frame, "watched", tmp_path, availableNow=True) as stream:
            stream.finish()
        eventually(lambda: watching.ended, to_be=2, within_s=WITHIN_S, what="the end of the second run")
    finally:
        spark.streams.removeListener(watching)
    told = [progress for progress in watching.told if progress.numInputRows]
    assert [progress.numInputRows for progress in told] == [40, 40, 20, 5]
    assert {progress.name for progress in told} == {"watched"}
    assert [sum(cordwood.spark.lag(progress).values()) for progress in told] == [60, 20, 0, 0]
    standing = cordwood.spark.progress("spark-watched", broker.bootstrap)[TopicPartition(topic, 0)]
    assert (standing.position, standing.lost) == (70, 5)


def test_a_query_without_a_name_reports_its_progress_under_its_id(
    load_stream: Load, put: Produce, topic: str, tmp_path: Path, broker: RunningBroker
) -> None:
    put(topic, numbered(0, 5))
    writer = load_stream(topic, startingOffsets="earliest").writeStream.format("noop")
    query = begun(writer.option("checkpointLocation", str(tmp_path)).trigger(availableNow=True))
    assert query.awaitTermination(WITHIN_S)
    assert _position(f"spark-{query.id}", TopicPartition(topic, 0), broker) == 5


def test_a_checkpoint_of_sparks_kafka_source_is_read_on(
    spark: SparkSession, load_stream: Load, put: Produce, make_topic: MakeTopic, tmp_path: Path
) -> None:
    topic = make_topic(2)
    put(topic, [*numbered(0, 10), *numbered(10, 20, partition=1)])
    frame = load_stream(topic, startingOffsets="earliest")
    with running(frame, "of_kafka", tmp_path, availableNow=True) as stream:
        stream.finish()
    offsets = tmp_path / "offsets" / "0"
    lines = offsets.read_text().splitlines()
    assert json.loads(lines[-1]) == {topic: {"00": 0, "01": 0, "0": 10, "1": 10}}
    # Kafka's source writes the text so: without blanks, in another order.
    _rewrite(offsets, "\n".join([*lines[:-1], f'{{"{topic}":{{"1":4,"0":7}}}}']))
    with running(frame, "read_on", tmp_path, availableNow=True) as stream:
        stream.finish()
        assert stream.values() == [7, 8, 9, *range(14, 20)]


def test_what_is_lost_before_the_first_batch_is_repeated_is_told(
    load_stream: Load, put: Produce, topic: str, admin: AdminClient, tmp_path: Path
) -> None:
    put(topic, numbered(0, 10))
    frame = load_stream(topic, startingOffsets="earliest")
    writer = frame.writeStream.option("checkpointLocation", str(tmp_path)).trigger(availableNow=True)
    query = begun(writer.foreachBatch(_fails))
    with pytest.raises(StreamingQueryException, match="the first batch fails"):
        query.awaitTermination(WITHIN_S)
    admin.delete_records([Position(topic, 0, 5)])[Position(topic, 0, 5)].result(120)
    lost = pytest.raises(StreamingQueryException, match=r"offsets 0 to 4 \(5 offsets\)")
    with running(frame, "repeats", tmp_path, availableNow=True) as stream, lost:
        stream.finish()


def test_a_query_that_fails_leaves_no_group_of_notes(
    load_stream: Load, put: Produce, topic: str, admin: AdminClient, tmp_path: Path
) -> None:
    put(topic, numbered(0, 10))
    frame = load_stream(topic, startingOffsets="earliest", groupIdPrefix=f"of-{topic}")
    writer = frame.writeStream.queryName("left_behind").option("checkpointLocation", str(tmp_path))

    def reads_and_fails(batch: DataFrame, number: int) -> None:
        assert batch.count() == 10
        found.append(_boxes(admin, topic))
        raise RuntimeError("after its tasks have left a note")

    found: list[list[str]] = []
    query = begun(writer.trigger(availableNow=True).foreachBatch(reads_and_fails))
    with pytest.raises(StreamingQueryException, match="after its tasks have left a note"):
        query.awaitTermination(WITHIN_S)
    assert len(found[0]) == 1
    eventually(lambda: not _boxes(admin, topic), what="no group of notes")


def test_the_group_of_notes_of_a_killed_planner_goes_with_the_next_run_of_its_query(
    load_stream: Load, put: Produce, topic: str, admin: AdminClient, tmp_path: Path
) -> None:
    put(topic, numbered(0, 10))
    frame = load_stream(topic, startingOffsets="earliest", groupIdPrefix=f"of-{topic}")
    writer = frame.writeStream.queryName("killed").option("checkpointLocation", str(tmp_path))

    def kills_its_planner(batch: DataFrame, number: int) -> None:
        assert batch.count() == 10
        # Planners of earlier queries may still be about to end.
        eventually(lambda: len(_planners()), to_be=1, what="one planner")
        os.kill(_planners()[0], signal.SIGKILL)
        raise RuntimeError("without a planner")

    query = begun(writer.trigger(availableNow=True).foreachBatch(kills_its_planner))
    with pytest.raises(StreamingQueryException, match="without a planner"):
        query.awaitTermination(WITHIN_S)
    assert len(_boxes(admin, topic)) == 1
    with running(frame, "killed", tmp_path, availableNow=True) as stream:
        stream.finish()
        assert stream.values() == list(range(10))
    assert _boxes(admin, topic) == []


def _boxes(admin: AdminClient, topic: str) -> list[str]:
    listed = admin.list_consumer_groups(request_timeout=30).result(120)
    return [each.group_id for each in listed.valid if f"of-{topic}-notes-" in each.group_id]


def _planners() -> list[int]:
    """The processes of planners below this one."""
    parents, planners = {}, []
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(FileNotFoundError, ProcessLookupError):
            parents[int(process.name)] = int((process / "stat").read_text().rpartition(")")[2].split()[1])
            if b"python_streaming_source_runner" in (process / "cmdline").read_bytes():
                planners.append(int(process.name))
    return [each for each in planners if os.getpid() in _ancestors(each, parents)]


def _ancestors(process: int, parents: dict[int, int]) -> list[int]:
    found = []
    while (process := parents.get(process, 0)) > 0:
        found.append(process)
    return found


def _fails(batch: DataFrame, number: int) -> None:
    raise RuntimeError("the first batch fails")


def _rewrite(file: Path, text: str) -> None:
    file.with_name(f".{file.name}.crc").unlink(missing_ok=True)
    file.write_text(text)


def test_topics_and_partitions_come_and_go_while_a_query_runs(
    load_stream: Load, put: Produce, make_topic: MakeTopic, admin: AdminClient, tmp_path: Path
) -> None:
    topic = make_topic()
    frame = load_stream(subscribePattern=f"{topic}.*", startingOffsets="earliest", failOnDataLoss="false")
    with running(frame, "comes_and_goes", tmp_path) as stream:
        put(topic, numbered(0, 10))
        stream.await_values(list(range(10)))
        admin.create_partitions([NewPartitions(topic, 2)])[topic].result(120)
        another = f"{topic}-b"
        admin.create_topics([NewTopic(another, 1, 1)])[another].result(120)
        await_topic(admin, topic, 2)
        await_topic(admin, another, 1)
        put(topic, numbered(10, 20, partition=1))
        put(another, numbered(20, 30))
        stream.await_values(list(range(30)))
        admin.delete_topics([another])[another].result(120)
        put(topic, numbered(30, 40))
        stream.await_values(list(range(40)))


def test_a_broker_that_restarts_costs_time_and_nothing_else(spark: SparkSession, tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "data", keep_port=True) as process:
        admin = AdminClient({"bootstrap.servers": process.bootstrap})
        admin.create_topics([NewTopic("orders", 2, 1)])["orders"].result(120)
        produce(process.bootstrap, "orders", numbered(0, 50))
        reader = spark.readStream.format("cordwood").option("kafka.bootstrap.servers", process.bootstrap)
        frame = reader.option("subscribe", "orders").option("startingOffsets", "earliest").load()
        with running(frame, "survives", tmp_path / "checkpoint") as stream:
            stream.await_values(list(range(50)))
            for first in (50, 100):
                process.kill()
                time.sleep(0.5)
                process.start()
                produce(process.bootstrap, "orders", numbered(first, first + 50, partition=1))
                stream.await_values(list(range(first + 50)))


def test_lost_records_end_a_query_with_an_error_that_says_which_or_are_counted(
    load_stream: Load, put: Produce, admin: AdminClient, topic: str, tmp_path: Path, broker: RunningBroker
) -> None:
    put(topic, numbered(0, 10))
    with running(load_stream(topic, startingOffsets="earliest"), "loses", tmp_path, availableNow=True) as stream:
        stream.finish()
    put(topic, numbered(10, 50))
    admin.delete_records([Position(topic, 0, 30)])[Position(topic, 0, 30)].result(120)
    with (
        running(load_stream(topic), "loses_all", tmp_path, availableNow=True) as stream,
        pytest.raises(Exception, match=rf"{topic}-0: offsets 10 to 29 \(20 offsets\)"),
    ):
        stream.finish()
    with running(load_stream(topic, failOnDataLoss="false"), "loses", tmp_path, availableNow=True) as stream:
        stream.finish()
        assert stream.values() == list(range(30, 50))
    standing = cordwood.spark.progress("spark-loses", broker.bootstrap)[TopicPartition(topic, 0)]
    assert (standing.position, standing.lost) == (50, 20)


def test_wrong_options_end_a_query_before_it_begins(load_stream: Load, topic: str, tmp_path: Path) -> None:
    writer = load_stream(topic, endingOffsets="latest").writeStream.format("noop")
    with pytest.raises(Exception, match="endingOffsets has no meaning for a stream"):
        begun(writer.option("checkpointLocation", str(tmp_path))).awaitTermination(WITHIN_S)


def test_headers_and_fewer_columns_in_a_stream(load_stream: Load, put: Produce, topic: str, tmp_path: Path) -> None:
    put(topic, [record._replace(headers=[("h", b"1")]) for record in numbered(0, 3)])
    schema = "value binary, headers array<struct<key: string, value: binary>>"
    frame = load_stream(topic, schema=schema, startingOffsets="earliest", includeHeaders="true")
    with running(frame.where("headers[0].key = 'h'").select("value"), "headers", tmp_path, availableNow=True) as stream:
        stream.finish()
        assert stream.values() == [0, 1, 2]
