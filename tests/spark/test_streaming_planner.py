"""The ends of micro-batches, on a real broker, without Spark: limits, growth, deletion, loss, brokers that are away."""

import json
import logging
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import Producer
from confluent_kafka import TopicPartition as Position
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic
from pyspark.sql.streaming.datasource import ReadAllAvailable
from pyspark.sql.types import BinaryType, StructField, StructType
from tests.broker_process import BrokerProcess
from tests.conftest import MakeTopic, RunningBroker, await_topic
from tests.deadline import eventually
from tests.spark.conftest import Produce, Record, numbered

from cordwood.client.cluster import Cluster
from cordwood.client.errors import BrokerUnreachable
from cordwood.client.settings import ClientSettings
from cordwood.model.identifiers import TopicPartition
from cordwood.spark.source import notes
from cordwood.spark.source.batch_planner import plan_batch
from cordwood.spark.source.data_loss import DataLoss
from cordwood.spark.source.offsets import Positions, from_spark, to_spark
from cordwood.spark.source.options import SourceOptions, TaskSizes, read_options
from cordwood.spark.source.planning import Reading, ReadTask, plan_tasks
from cordwood.spark.source.progress import read_progress
from cordwood.spark.source.pushed_filters import PushedFilters
from cordwood.spark.source.range_reading import RangeReader
from cordwood.spark.source.stream_planner import StreamPlanner
from cordwood.spark.source.stream_reader import StreamReader
from cordwood.spark.source.survey import NothingToRead

pytestmark = pytest.mark.landing

VALUES = pa.schema([("value", pa.binary())])


def options(bootstrap: str, **given: Any) -> SourceOptions:
    texts = {"kafka.bootstrap.servers": bootstrap, "progressGroup": "none", "startingOffsets": "earliest"}
    texts |= {name: str(value) for name, value in given.items()}
    return read_options({name: text for name, text in texts.items() if text != "unset"}, streaming=True)


class Query:
    """Drives a planner as Spark does, step by step."""

    def __init__(self, chosen: SourceOptions, start: Positions | None = None) -> None:
        self.planner = StreamPlanner(chosen)
        self.start = self.planner.initial() if start is None else start

    def step(self, *, limited: bool = True) -> list[int]:
        """Plans and reads one micro-batch, and returns its numbers. The positions go through their text, as in a
        checkpoint."""
        end = self.planner.latest(from_spark(to_spark(self.start)), limited=limited)
        found = self.read(self.start, end)
        self.start = end
        return found

    def read(self, start: Positions, end: Positions, min_tasks: int = 2) -> list[int]:
        reading = Reading(self.planner.options, VALUES)
        tasks = plan_tasks(self.planner.ranges(start, end), TaskSizes(min_tasks=min_tasks), 1)
        box, _ = self.planner.box_for_tasks()
        readers = [RangeReader(reading, ReadTask(task, self.planner.topic_ids, box)) for task in tasks]
        batches = [batch for reader in readers for batch in reader.read()]
        return sorted(int(value) for batch in batches for value in batch["value"].to_pylist())


@pytest.fixture
def query(broker: RunningBroker) -> Iterator[Any]:
    made: list[Query] = []

    def make(start: Positions | None = None, **given: Any) -> Query:
        made.append(Query(options(broker.bootstrap, **given), start))
        return made[-1]

    yield make
    for one in made:
        one.planner.close()


def zero(topic: str) -> TopicPartition:
    return TopicPartition(topic, 0)


def test_each_batch_begins_where_the_last_one_ended(query: Any, put: Produce, topic: str) -> None:
    put(topic, numbered(0, 10))
    stream = query(subscribe=topic)
    assert stream.step() == list(range(10))
    assert stream.step() == []
    assert stream.start == {zero(topic): 10}
    put(topic, numbered(10, 15))
    assert stream.step() == list(range(10, 15))


def test_a_stream_begins_where_it_is_told_to(query: Any, put: Produce, make_topic: MakeTopic) -> None:
    topic = make_topic(**{"retention.ms": "-1"})
    put(topic, [record._replace(timestamp_ms=1000 + index) for index, record in enumerate(numbered(0, 10))])
    assert query(subscribe=topic, startingOffsets="unset").start == {zero(topic): 10}
    assert query(subscribe=topic, startingOffsets="latest").start == {zero(topic): 10}
    assert query(subscribe=topic, startingOffsets=f'{{"{topic}": {{"0": 4}}}}').start == {zero(topic): 4}
    assert query(subscribe=topic, startingOffsets="unset", startingTimestamp=1007).start == {zero(topic): 7}
    assert query(subscribe=topic, startingOffsets="group", group=f"nobody-{topic}").start == {zero(topic): 0}
    with pytest.raises(DataLoss, match="it ends at 10"):
        query(subscribe=topic, startingOffsets=f'{{"{topic}": {{"0": 40}}}}')


def at(topic: str, **offsets: int) -> str:
    """An option's text: `at("orders", p0=5)`."""
    return json.dumps({topic: {name[1:]: offset for name, offset in offsets.items()}})


def test_a_stream_stops_where_it_is_told_to_and_reads_other_topics_on(
    query: Any, put: Produce, make_topic: MakeTopic
) -> None:
    bounded, other = make_topic(2), make_topic()
    put(bounded, [*numbered(0, 10), *numbered(10, 20, partition=1)])
    put(other, numbered(100, 103))
    stream = query(subscribe=f"{bounded},{other}", stopAtOffsets=at(bounded, p0=4))
    assert stream.step() == [0, 1, 2, 3, 100, 101, 102]
    put(other, numbered(103, 104))
    assert stream.step() == [103]
    assert stream.start[TopicPartition(bounded, 1)] == 0, "a partition that is not named is not read"


def test_a_query_goes_over_to_another_topic_between_two_records(
    query: Any, put: Produce, make_topic: MakeTopic
) -> None:
    first, second = make_topic(), make_topic(2)
    put(first, numbered(0, 10))
    put(second, [*numbered(0, 9), *numbered(20, 25, partition=1)])
    over = {"stopAtOffsets": at(first, p0=7), "continueAtOffsets": at(second, p0=7, p1=2)}
    stream = query(subscribe=first, maxOffsetsPerTrigger=5, **over)
    assert [stream.step(), stream.step()] == [list(range(5)), [5, 6]]
    begin = stream.start
    assert stream.step() == [], "the step from topic to topic has no records"
    assert stream.start == {TopicPartition(second, 0): 7, TopicPartition(second, 1): 2}
    assert stream.step() == [], "the query plans nothing more"
    again = query(start=begin, subscribe=first, **over)
    assert again.read(begin, stream.start) == [], "the step may be repeated"
    assert query(start=stream.start, subscribe=second).step() == [7, 8, 22, 23, 24]


def test_a_query_goes_over_at_once_where_nothing_is_left_and_with_a_fixed_end(
    query: Any, put: Produce, make_topic: MakeTopic
) -> None:
    first, second, other = make_topic(), make_topic(), make_topic()
    put(second, numbered(0, 3))
    put(other, numbered(50, 52))
    over = {"stopAtOffsets": at(first, p0=0), "continueAtOffsets": at(second, p0=1)}
    stream = query(subscribe=f"{first},{other}", **over)
    stream.planner.fix_end()
    assert stream.step() == []
    assert stream.start == {zero(second): 1, zero(other): 0}, "other topics keep their positions"
    assert query(start=stream.start, subscribe=f"{second},{other}").step() == [1, 2, 50, 51]


def test_a_topic_that_stays_holds_the_step_up_until_it_is_read_so_far(
    query: Any, put: Produce, make_topic: MakeTopic
) -> None:
    first, second, stays = make_topic(), make_topic(), make_topic(2)
    put(first, numbered(0, 2))
    put(second, numbered(0, 3))
    put(stays, numbered(10, 13))
    held = json.loads(at(stays, p0=4))
    over = {"stopAtOffsets": at(first, p0=2), "continueAtOffsets": at(second, p0=2)}
    over = {name: json.dumps({**json.loads(text), **held}) for name, text in over.items()}
    stream = query(subscribe=f"{first},{stays}", **over)
    assert stream.step() == [0, 1, 10, 11, 12]
    assert stream.step() == []
    assert zero(first) in stream.start, "the topic that stays is not read so far"
    put(stays, numbered(13, 15))
    assert [stream.step(), stream.step()] == [[13], []]
    assert stream.start == {zero(second): 2, zero(stays): 4, TopicPartition(stays, 1): 0}
    assert stream.step() == [], "the query plans nothing more"


def test_a_query_leaves_a_topic_that_was_deleted_if_losses_are_allowed(
    query: Any, put: Produce, make_topic: MakeTopic, admin: AdminClient
) -> None:
    first, second = make_topic(), make_topic()
    put(first, numbered(0, 5))
    put(second, numbered(0, 3))
    over = {"stopAtOffsets": at(first, p0=5), "continueAtOffsets": at(second, p0=2)}
    admin.delete_topics([first])[first].result(120)
    stream = query({zero(first): 2}, subscribe=first, failOnDataLoss="false", **over)
    assert stream.step() == []
    assert stream.start == {zero(second): 2}
    with pytest.raises(DataLoss):
        query({zero(first): 2}, subscribe=first, **over).step()


def test_a_topic_that_is_named_and_missing_is_a_mistake_at_the_beginning(query: Any) -> None:
    with pytest.raises(NothingToRead, match="no-such-topic does not exist"):
        query(subscribe="no-such-topic")
    assert query(subscribePattern="no-such-topic").step() == []


def test_a_batch_takes_at_most_so_many_offsets(query: Any, put: Produce, make_topic: MakeTopic) -> None:
    topic = make_topic(2)
    put(topic, [*numbered(0, 90), *numbered(90, 100, partition=1)])
    stream = query(subscribe=topic, maxOffsetsPerTrigger=30)
    batches = [stream.step() for _ in range(5)]
    assert [len(batch) for batch in batches] == [30, 30, 30, 10, 0]
    assert sorted(number for batch in batches for number in batch) == list(range(100))
    assert any(number >= 90 for number in batches[0])


def test_spark_may_ask_for_everything_in_spite_of_a_limit(query: Any, put: Produce, topic: str) -> None:
    put(topic, numbered(0, 10))
    assert len(query(subscribe=topic, maxOffsetsPerTrigger=3).step(limited=False)) == 10


def test_a_batch_takes_about_so_many_bytes(query: Any, put: Produce, topic: str) -> None:
    put(topic, [Record(str(number).zfill(1000).encode()) for number in range(200)])
    stream = query(subscribe=topic, maxBytesPerTrigger="50k")
    sizes = []
    while batch := stream.step():
        sizes.append(len(batch))
    assert sum(sizes) == 200
    assert all(30 <= size <= 60 for size in sizes[:-1])


def test_a_batch_waits_for_enough_but_not_for_ever(query: Any, put: Produce, topic: str) -> None:
    put(topic, numbered(0, 5))
    patient = query(subscribe=topic, minOffsetsPerTrigger=10)
    impatient = query(subscribe=topic, minOffsetsPerTrigger=10, maxTriggerDelay="1ms")
    assert len(patient.step()) == len(impatient.step()) == 5  # the first batch waits for nothing
    put(topic, numbered(5, 10))
    assert patient.step() == []
    time.sleep(0.01)
    assert impatient.step() == [5, 6, 7, 8, 9]
    put(topic, numbered(10, 20))
    assert patient.step() == list(range(5, 20))


def test_available_now_ends_where_the_log_ended_at_the_beginning(
    query: Any, put: Produce, make_topic: MakeTopic
) -> None:
    topic = make_topic()
    put(topic, numbered(0, 10))
    stream = query(subscribe=topic, maxOffsetsPerTrigger=6, minOffsetsPerTrigger=5)
    stream.planner.fix_end()
    put(topic, numbered(10, 20))
    assert [len(stream.step()) for _ in range(3)] == [6, 4, 0]


def test_available_now_with_a_beginning_after_its_end_reads_nothing(query: Any, put: Produce, topic: str) -> None:
    put(topic, numbered(0, 10))
    stream = query({zero(topic): 8}, subscribe=topic)
    stream.planner.fix_end()
    put(topic, numbered(10, 20))
    stream.start = {zero(topic): 15}
    assert stream.step() == []
    assert stream.start == {zero(topic): 15}


def test_partitions_and_topics_appear_while_a_query_runs(
    query: Any, put: Produce, make_topic: MakeTopic, admin: AdminClient
) -> None:
    topic = make_topic()
    put(topic, numbered(0, 5))
    stream = query(subscribePattern=f"{topic}.*")
    assert stream.step() == [0, 1, 2, 3, 4]
    admin.create_partitions([NewPartitions(topic, 3)])[topic].result(120)
    another = f"{topic}-another"
    admin.create_topics([NewTopic(another, 1, 1)])[another].result(120)
    await_topic(admin, topic, 3)
    await_topic(admin, another, 1)
    put(topic, numbered(5, 8, partition=2))
    put(another, numbered(8, 10))
    assert stream.step() == []  # they enter at their beginning ...
    assert len(stream.start) == 4
    assert stream.step() == [5, 6, 7, 8, 9]  # ... and are read from there


def delete(admin: AdminClient, topic: str) -> None:
    admin.delete_topics([topic])[topic].result(120)
    eventually(lambda: topic not in admin.list_topics(timeout=20).topics, what="the end of a topic")


def create_again(admin: AdminClient, topic: str, partitions: int) -> None:
    delete(admin, topic)
    admin.create_topics([NewTopic(topic, partitions, 1)])[topic].result(120)
    await_topic(admin, topic, partitions)


def test_a_deleted_topic_is_a_loss(query: Any, put: Produce, make_topic: MakeTopic, admin: AdminClient) -> None:
    topic = make_topic()
    put(topic, numbered(0, 5))
    strict = query(subscribe=topic)
    lenient = query(subscribe=topic, failOnDataLoss="false", maxOffsetsPerTrigger=3)
    assert strict.step() == [0, 1, 2, 3, 4]
    assert lenient.step() == [0, 1, 2]
    delete(admin, topic)
    with pytest.raises(DataLoss, match=f"{topic}-0: .* does not exist any more"):
        strict.step()
    assert lenient.step() == []
    assert lenient.start == {}
    assert lenient.planner.ledger.total == 2
    admin.create_topics([NewTopic(topic, 1, 1)])[topic].result(120)
    await_topic(admin, topic, 1)
    put(topic, numbered(100, 103))
    assert [*lenient.step(), *lenient.step()] == [100, 101, 102]


def test_a_topic_that_was_created_again_is_another_even_if_the_offsets_fit(
    query: Any, put: Produce, make_topic: MakeTopic, admin: AdminClient, caplog: pytest.LogCaptureFixture
) -> None:
    topic = make_topic()
    put(topic, numbered(0, 5))
    strict, lenient = query(subscribe=topic), query(subscribe=topic, failOnDataLoss="false")
    assert strict.step() == lenient.step() == [0, 1, 2, 3, 4]
    create_again(admin, topic, 1)
    put(topic, numbered(100, 109))
    with pytest.raises(DataLoss, match="the topic was deleted and created again"):
        strict.step()
    with caplog.at_level(logging.WARNING):
        assert lenient.step() == []
    assert "deleted and created again" in caplog.text
    assert lenient.step() == []
    assert lenient.step() == list(range(100, 109))


def test_a_topic_that_is_created_again_between_planning_and_reading_is_not_read(
    query: Any, put: Produce, make_topic: MakeTopic, admin: AdminClient
) -> None:
    topic = make_topic()
    put(topic, numbered(0, 5))
    stream = query(subscribe=topic)
    end = stream.planner.latest(stream.start, limited=True)
    create_again(admin, topic, 1)
    put(topic, numbered(100, 109))
    with pytest.raises(DataLoss, match=r"offsets 0 to 1 .*: the topic was deleted and created again"):
        stream.read(stream.start, end)


def test_a_planned_batch_whose_topic_was_created_again_and_is_shorter_does_not_stop_a_query_for_ever(
    query: Any, put: Produce, make_topic: MakeTopic, admin: AdminClient
) -> None:
    topic = make_topic()
    put(topic, numbered(0, 10))
    planned = query(subscribe=topic)
    end = planned.planner.latest(planned.start, limited=True)
    create_again(admin, topic, 1)
    put(topic, numbered(100, 104))
    given = {"subscribe": topic, "kafkaConsumer.pollTimeoutMs": 1000, "kafka.default.api.timeout.ms": 1000}
    strict = query(planned.start, **given)
    lenient = query(planned.start, **given, failOnDataLoss="false")
    with pytest.raises(DataLoss, match=r"offsets 4 to 9 .*the log ends before .* \(it ends at 4\)"):
        strict.read(strict.start, end, min_tasks=1)
    assert lenient.read(lenient.start, end, min_tasks=1) == [100, 101, 102, 103]
    lenient.start = end
    assert [lenient.step() for _ in range(3)] == [[], [], [100, 101, 102, 103]]


def test_a_topic_created_again_with_fewer_partitions_while_a_query_was_stopped_is_another_one(
    query: Any, put: Produce, make_topic: MakeTopic, admin: AdminClient
) -> None:
    topic = make_topic(2)
    position = {zero(topic): 3, TopicPartition(topic, 1): 0}
    create_again(admin, topic, 1)
    put(topic, numbered(100, 105))
    with pytest.raises(DataLoss, match=f"{topic}-0: .*the topic was deleted and created again"):
        query(position, subscribe=topic).step()
    lenient = query(position, subscribe=topic, failOnDataLoss="false")
    assert [lenient.step() for _ in range(3)] == [[], [], [100, 101, 102, 103, 104]]


def test_a_topic_that_is_no_longer_subscribed_to_is_said(query: Any, put: Produce, make_topic: MakeTopic) -> None:
    one, two = make_topic(), make_topic()
    put(one, numbered(0, 3))
    with pytest.raises(DataLoss, match=f"{two}-0: .*does not read it any more"):
        query({zero(one): 0, zero(two): 0}, subscribe=one).step()


def test_a_loss_is_counted_once_although_its_batch_is_planned_again_after_a_restart(
    query: Any, put: Produce, topic: str, admin: AdminClient
) -> None:
    put(topic, numbered(0, 10))
    group = f"progress-{topic}"
    given = {"subscribe": topic, "failOnDataLoss": "false", "progressGroup": group}
    first = query(**given)
    admin.delete_records([Position(topic, 0, 5)])[Position(topic, 0, 5)].result(120)
    first.planner.latest(first.start, limited=True)  # and the query dies before this batch is finished
    assert read_progress(first.planner._cluster, group)[zero(topic)].lost == 0
    second = query(first.start, **given)
    assert second.step() == [5, 6, 7, 8, 9]
    second.step()
    standing = read_progress(second.planner._cluster, group)[zero(topic)]
    assert (standing.position, standing.lost) == (10, 5)


def test_a_loss_is_told_once(
    query: Any, put: Produce, topic: str, admin: AdminClient, caplog: pytest.LogCaptureFixture
) -> None:
    put(topic, numbered(0, 10))
    stream = query(subscribe=topic, failOnDataLoss="false", minOffsetsPerTrigger=100)
    stream.planner._last_batch_s = time.monotonic()  # so that it waits for more
    admin.delete_records([Position(topic, 0, 5)])[Position(topic, 0, 5)].result(120)
    with caplog.at_level(logging.WARNING):
        assert stream.step() == stream.step() == []
    assert caplog.text.count("data loss") == 1


def test_a_topic_that_a_changed_query_names_and_nobody_knows_is_waited_for_and_said(
    query: Any, put: Produce, make_topic: MakeTopic, caplog: pytest.LogCaptureFixture
) -> None:
    topic = make_topic()
    put(topic, numbered(0, 3))
    stream = query({zero(topic): 0}, subscribe=f"{topic},{topic}-not-yet")
    with caplog.at_level(logging.WARNING):
        assert stream.step() == [0, 1, 2]
        assert stream.step() == []
    assert caplog.text.count(f"topic {topic}-not-yet does not exist") == 1


def test_lost_records_are_an_error_or_are_counted(
    query: Any, put: Produce, topic: str, admin: AdminClient, broker: RunningBroker, caplog: pytest.LogCaptureFixture
) -> None:
    put(topic, numbered(0, 50))
    group = f"progress-{topic}"
    strict = query(subscribe=topic)
    lenient = query(subscribe=topic, failOnDataLoss="false", progressGroup=group)
    admin.delete_records([Position(topic, 0, 20)])[Position(topic, 0, 20)].result(120)
    with pytest.raises(DataLoss) as failed:
        strict.step()
    assert f"{topic}-0: offsets 0 to 19 (20 offsets): records were removed" in str(failed.value)
    with caplog.at_level(logging.WARNING):
        assert lenient.step() == list(range(20, 50))
    assert "data loss (failOnDataLoss=false), 20 offsets" in caplog.text
    assert lenient.step() == []
    assert lenient.planner.ledger.total == 20
    standing = read_progress(lenient.planner._cluster, group)[zero(topic)]
    assert (standing.position, standing.lost) == (50, 20)
    # The count goes on over a restart.
    restarted = query(lenient.start, subscribe=topic, failOnDataLoss="false", progressGroup=group)
    put(topic, numbered(50, 60))
    admin.delete_records([Position(topic, 0, 53)])[Position(topic, 0, 53)].result(120)
    assert restarted.step() == list(range(53, 60))
    restarted.step()
    standing = read_progress(lenient.planner._cluster, group)[zero(topic)]
    assert (standing.position, standing.lost) == (60, 23)


def test_records_that_vanish_between_planning_and_reading_are_told_too(
    query: Any, put: Produce, topic: str, admin: AdminClient
) -> None:
    put(topic, numbered(0, 50))
    strict, lenient = query(subscribe=topic), query(subscribe=topic, failOnDataLoss="false")
    end = strict.planner.latest(strict.start, limited=True)
    assert lenient.planner.latest(lenient.start, limited=True) == end
    admin.delete_records([Position(topic, 0, 30)])[Position(topic, 0, 30)].result(120)
    with pytest.raises(DataLoss, match=r"Records were lost while .*\n.*offsets 0 to 24"):
        strict.read(strict.start, end)
    assert lenient.read(lenient.start, end) == list(range(30, 50))
    lenient.start = end
    lenient.step()
    assert lenient.planner.ledger.total == 30


def test_the_first_batch_is_the_same_when_it_is_planned_again(
    broker: RunningBroker, put: Produce, topic: str, admin: AdminClient
) -> None:
    put(topic, numbered(0, 10))
    given = options(broker.bootstrap, subscribe=topic, startingOffsets="latest")
    first, restarted = (StreamReader(given, StructType([StructField("value", BinaryType())])) for _ in range(2))
    began = first.initialOffset()
    assert first.latestOffset(began, ReadAllAvailable()) == began
    put(topic, numbered(10, 20))
    end = first.latestOffset(began, ReadAllAvailable())
    put(topic, numbered(20, 30))
    assert restarted.initialOffset() == {topic: {"0": 30}}
    for reader, start in ((first, began), (restarted, restarted.initialOffset())):
        batches = [batch for task in reader.partitions(start, end) for batch in reader.read(task)]
        assert [int(value) for batch in batches for value in batch["value"].to_pylist()] == list(range(10, 20))
    end = restarted.latestOffset(end, ReadAllAvailable())
    assert end == {topic: {"0": 30}}
    assert restarted.latestOffset(end, ReadAllAvailable()) == end
    assert restarted.partitions(end, end) == []
    for reader in (first, restarted):
        reader.stop()


def test_an_open_transaction_holds_committed_reads_back_and_is_no_loss(
    query: Any, put: Produce, topic: str, broker: RunningBroker
) -> None:
    put(topic, numbered(0, 5))
    producer = Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": f"tx-{topic}"})
    producer.init_transactions(60)
    producer.begin_transaction()
    for number in range(5, 8):
        producer.produce(topic, str(number), partition=0)
    producer.flush(60)
    committed = query(subscribe=topic, **{"kafka.isolation.level": "read_committed"})
    assert committed.step() == [0, 1, 2, 3, 4]
    ahead = query({zero(topic): 7}, subscribe=topic, **{"kafka.isolation.level": "read_committed"})
    assert ahead.step() == []
    there = {"kafka.isolation.level": "read_committed", "startingOffsets": f'{{"{topic}": {{"0": 7}}}}'}
    begun = query(subscribe=topic, **there)
    assert begun.step() == []
    of_batch = {"kafka.bootstrap.servers": broker.bootstrap, "subscribe": topic, **there}
    assert plan_batch(read_options(of_batch, streaming=False), PushedFilters()).ranges == []
    producer.commit_transaction(60)
    eventually(committed.step, to_be=[5, 6, 7], what="the committed records")
    assert begun.step() == [7]


def test_a_broker_that_is_away_holds_a_query_up_and_does_not_end_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with BrokerProcess(tmp_path / "data", keep_port=True) as process:
        admin = AdminClient({"bootstrap.servers": process.bootstrap})
        admin.create_topics([NewTopic("orders", 1, 1)])["orders"].result(120)
        chosen = options(process.bootstrap, subscribe="orders", **{"kafka.default.api.timeout.ms": 300})
        stream = Query(chosen)
        stream.step()
        process.kill()
        with caplog.at_level(logging.WARNING):
            assert stream.step() == []
        assert "the query waits for the brokers" in caplog.text
        stream.planner._target = {}
        with pytest.raises(BrokerUnreachable):  # with a fixed end, "nothing to do" would mean that everything was read
            stream.step()
        stranger = StreamPlanner(chosen)
        with pytest.raises(BrokerUnreachable):
            stranger.latest(stream.start, limited=True)
        process.start()
        stream.planner._target = None
        eventually(lambda: stream.step() == [] and stream.planner.last_seen == {zero("orders"): 0}, what="the broker")
        stream.planner.close()
        stranger.close()


def test_notes_of_a_query_that_was_killed_expire_and_are_no_position_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with BrokerProcess(tmp_path / "data", settings={"offsets.retention.check.interval.ms": "50"}) as process:
        admin = AdminClient({"bootstrap.servers": process.bootstrap})
        admin.create_topics([NewTopic("orders", 1, 1)])["orders"].result(120)
        with Cluster(ClientSettings(process.bootstrap)) as cluster:
            notes.report_loss(cluster, "a-box", zero("orders"), 3, 8)
            assert cluster.groups() == ["a-box"]
            assert cluster.committed("a-box") == {}
            monkeypatch.setattr(notes, "KEPT_MS", 1)
            notes.report_loss(cluster, "a-box", zero("orders"), 1, 2)
            eventually(lambda: not cluster.groups(), what="no note")


def test_a_planner_removes_its_notes_when_its_query_ends(query: Any, put: Produce, topic: str) -> None:
    put(topic, numbered(0, 3))
    stream = query(subscribe=topic, progressGroup="unset")
    stream.step()
    with Cluster(stream.planner.options.client) as cluster:
        notes.report_loss(cluster, stream.planner.box, zero(topic), 0, 2)
        assert stream.planner.box in cluster.groups()
        stream.planner.close()
        assert stream.planner.box not in cluster.groups()


def test_a_planner_removes_notes_of_earlier_runs_of_its_query_and_no_others(
    query: Any, put: Produce, topic: str, broker: RunningBroker
) -> None:
    put(topic, numbered(0, 3))
    prefix = f"of-{topic}"
    left = {
        name: notes.Run(*run)
        for name, run in {
            "killed": ("a query", "run 1", "orders"),
            "killed_before_that": ("a query", "run 0", "orders"),
            "other_source": ("a query", "run 2", "orders"),
            "other_query": ("another query", "run 1", "orders"),
            "run_unknown": ("a query", None, None),
        }.items()
    }
    with Cluster(ClientSettings(broker.bootstrap)) as cluster:
        boxes = {name: notes.new_box(prefix) for name in left}
        for name, run in left.items():
            notes.report_loss(cluster, boxes[name], zero(topic), 0, 1, run)
        # A group that has the name of a box, and is none.
        named_alike = f"{prefix}-notes-of-a-reader"
        cluster.commit(named_alike, {zero(topic): 1}, '{"lost": 1}')
        stream = query(subscribe=topic, groupIdPrefix=prefix, progressGroup="unset")
        stream.step()
        notes.introduce(cluster, stream.planner.box, zero(topic), notes.Run("a query", "run 2", "orders"))
        stream.step()
        there = {each for each in cluster.groups() if each.startswith(prefix)}
        kept = {boxes[name] for name in ("other_source", "other_query", "run_unknown")}
        assert there == kept | {named_alike, f"{prefix}-orders"}


def test_notes_of_a_batch_that_is_repeated_after_a_restart_are_read(
    put: Produce, topic: str, broker: RunningBroker
) -> None:
    """Spark asks for the tasks of a repeated batch without asking for its end."""
    put(topic, numbered(0, 3))
    chosen = options(broker.bootstrap, subscribe=topic, groupIdPrefix=f"of-{topic}", progressGroup="unset")
    reader = StreamReader(chosen, StructType([StructField("value", BinaryType())]))
    start, end = to_spark({zero(topic): 0}), to_spark({zero(topic): 3})
    (task,) = reader.partitions(start, end)
    assert isinstance(task, ReadTask)
    assert task.box is not None
    assert task.introduces
    with Cluster(chosen.client) as cluster:
        notes.introduce(cluster, task.box, zero(topic), notes.Run("a query", "a run", "orders"))
        assert reader.latestOffset(end, ReadAllAvailable()) == end
        assert cluster.committed(f"of-{topic}-orders") == {zero(topic): 3}
    reader.stop()


RUNNER = """
import os
import signal
import sys
from pyspark.sql.types import BinaryType, StructField, StructType
from cordwood.client.cluster import Cluster
from cordwood.model.identifiers import TopicPartition
from cordwood.spark.source import notes
from cordwood.spark.source.options import read_options
from cordwood.spark.source.stream_reader import StreamReader

given = {"kafka.bootstrap.servers": sys.argv[1], "subscribe": sys.argv[2], "startingOffsets": "earliest"}
options = read_options(given, streaming=True)
reader = StreamReader(options, StructType([StructField("value", BinaryType())]))
try:
    reader.initialOffset()
    with Cluster(options.client) as cluster:
        notes.report_loss(cluster, reader._planner.box, TopicPartition(sys.argv[2], 0), 0, 2)
    print(reader._planner.box, flush=True)
    # Spark sends the signal twice: the second time at the worst moment.
    def watch(frame, event, argument):
        if event == "call" and frame.f_code.co_name == "delete_group":
            os.kill(os.getpid(), signal.SIGTERM)
    sys.setprofile(watch)
    sys.stdin.read()
finally:
    reader.stop()
"""


@pytest.mark.parametrize("signal_comes_first", [True, False])
def test_a_planner_that_spark_ends_removes_its_notes_although_a_signal_comes_meanwhile(
    broker: RunningBroker, put: Produce, topic: str, tmp_path: Path, signal_comes_first: bool
) -> None:
    """Stands for Spark's own program of that name, which waits in the same place and has the same `finally`."""
    put(topic, numbered(0, 3))
    (tmp_path / "python_streaming_source_runner.py").write_text(RUNNER)
    command = [sys.executable, "-m", "python_streaming_source_runner", broker.bootstrap, topic]
    with subprocess.Popen(command, cwd=tmp_path, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as planner:
        assert planner.stdout is not None
        box = planner.stdout.readline().strip()
        with Cluster(ClientSettings(broker.bootstrap)) as cluster:
            assert box in cluster.groups()
            if signal_comes_first:
                planner.terminate()
            else:
                assert planner.stdin is not None
                planner.stdin.close()
            assert planner.wait(60) == 0
            assert box not in cluster.groups()
