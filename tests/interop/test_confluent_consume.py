"""Consuming with confluent-kafka by assignment: from anywhere, with positions kept for a group without members."""

import time
import uuid
from collections.abc import Iterator

import pytest
from confluent_kafka import (
    OFFSET_BEGINNING,
    OFFSET_END,
    OFFSET_INVALID,
    OFFSET_STORED,
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicPartition,
)
from tests.conftest import MakeTopic, RunningBroker
from tests.interop.confluent_clients import produce_all, read_some, read_to_end, reader

pytestmark = pytest.mark.landing

FIRST_STAMP_MS = int(time.time() * 1000) - 3_600_000
"""An hour ago: retention must not find it old."""


@pytest.fixture
def filled(broker: RunningBroker, topic: str) -> str:
    """A topic of 100 records, one a second by their timestamps."""
    client = Producer({"bootstrap.servers": broker.bootstrap, "linger.ms": 0, "batch.num.messages": 10})
    produce_all(
        client, [{"topic": topic, "value": f"v{n}", "timestamp": FIRST_STAMP_MS + 1000 * n} for n in range(100)]
    )
    return topic


@pytest.fixture
def consumer(broker: RunningBroker) -> Iterator[Consumer]:
    consumer = reader(broker.bootstrap, {"group.id": f"group-{uuid.uuid4().hex[:8]}"})
    yield consumer
    consumer.close()


def error_code(message: Message | None) -> int | None:
    """The code of the error that was polled; None for a record or for nothing."""
    error = None if message is None else message.error()
    return None if error is None else error.code()


def test_from_the_beginning(consumer: Consumer, filled: str) -> None:
    consumer.assign([TopicPartition(filled, 0, OFFSET_BEGINNING)])
    assert [message.offset() for message in read_some(consumer, 100)] == list(range(100))


def test_from_an_offset(consumer: Consumer, filled: str) -> None:
    consumer.assign([TopicPartition(filled, 0, 37)])
    assert [message.value() for message in read_some(consumer, 3)] == [b"v37", b"v38", b"v39"]


def test_from_the_end_only_what_is_new(broker: RunningBroker, consumer: Consumer, filled: str) -> None:
    consumer.assign([TopicPartition(filled, 0, OFFSET_END)])
    # The end of the partition is where the reader stands once it says so.
    message = consumer.poll(60)
    assert error_code(message) == KafkaError._PARTITION_EOF
    assert message is not None
    assert message.offset() == 100
    produce_all(Producer({"bootstrap.servers": broker.bootstrap}), [{"topic": filled, "value": b"new"}])
    (message,) = read_some(consumer, 1)
    assert (message.offset(), message.value()) == (100, b"new")


def test_the_last_records_before_the_end(consumer: Consumer, filled: str) -> None:
    low, high = consumer.get_watermark_offsets(TopicPartition(filled, 0), timeout=60)
    assert (low, high) == (0, 100)
    consumer.assign([TopicPartition(filled, 0, high - 2)])
    assert [message.value() for message in read_some(consumer, 2)] == [b"v98", b"v99"]


def test_seek_moves_both_ways(consumer: Consumer, filled: str) -> None:
    consumer.assign([TopicPartition(filled, 0, 50)])
    assert read_some(consumer, 1)[0].offset() == 50
    consumer.seek(TopicPartition(filled, 0, 3))
    assert read_some(consumer, 1)[0].offset() == 3
    consumer.seek(TopicPartition(filled, 0, 99))
    assert read_some(consumer, 1)[0].offset() == 99


def test_an_offset_beyond_the_end_is_out_of_range(consumer: Consumer, filled: str) -> None:
    consumer.assign([TopicPartition(filled, 0, 5000)])
    message = consumer.poll(60)
    assert error_code(message) == KafkaError._AUTO_OFFSET_RESET


@pytest.mark.parametrize(
    ("after_ms", "offset"),
    [(-3_600_000, 0), (0, 0), (1, 1), (41_500, 42), (99_000, 99), (99_001, OFFSET_END)],
)
def test_offsets_for_times(consumer: Consumer, filled: str, after_ms: int, offset: int) -> None:
    (found,) = consumer.offsets_for_times([TopicPartition(filled, 0, FIRST_STAMP_MS + after_ms)], timeout=60)
    assert found.error is None
    assert found.offset == offset


def test_offsets_for_times_where_timestamps_are_not_in_order(
    broker: RunningBroker, consumer: Consumer, topic: str
) -> None:
    stamps = [3000, 1000, 5000, 2000, 4000]
    client = Producer({"bootstrap.servers": broker.bootstrap})
    for stamp in stamps:
        produce_all(client, [{"topic": topic, "value": b"v", "timestamp": FIRST_STAMP_MS + stamp}])
    for target, offset in [(1000, 0), (3001, 2), (5000, 2)]:
        (found,) = consumer.offsets_for_times([TopicPartition(topic, 0, FIRST_STAMP_MS + target)], timeout=60)
        assert found.offset == offset


def test_offsets_for_times_inside_one_batch(broker: RunningBroker, consumer: Consumer, topic: str) -> None:
    client = Producer({"bootstrap.servers": broker.bootstrap, "linger.ms": 500, "compression.type": "lz4"})
    produce_all(client, [{"topic": topic, "value": f"v{n}", "timestamp": FIRST_STAMP_MS + 10 * n} for n in range(200)])
    for target in (0, 5, 990, 1990):
        (found,) = consumer.offsets_for_times([TopicPartition(topic, 0, FIRST_STAMP_MS + target)], timeout=60)
        assert found.offset == -(-target // 10)


def test_positions_are_committed_and_fetched_without_members(consumer: Consumer, filled: str) -> None:
    partition = TopicPartition(filled, 0)
    (before,) = consumer.committed([partition], timeout=60)
    assert before.offset == OFFSET_INVALID
    (committed,) = consumer.commit(offsets=[TopicPartition(filled, 0, 42, metadata="halfway, ü")], asynchronous=False)
    assert committed.error is None
    (after,) = consumer.committed([partition], timeout=60)
    assert (after.offset, after.metadata) == (42, "halfway, ü")


def test_a_new_reader_resumes_at_the_committed_position(broker: RunningBroker, filled: str) -> None:
    group = f"group-{uuid.uuid4().hex[:8]}"
    first = reader(broker.bootstrap, {"group.id": group})
    first.assign([TopicPartition(filled, 0, OFFSET_BEGINNING)])
    last = read_some(first, 25)[-1]
    first.commit(message=last, asynchronous=False)
    first.close()
    second = reader(broker.bootstrap, {"group.id": group})
    second.assign([TopicPartition(filled, 0, OFFSET_STORED)])
    assert read_some(second, 1)[0].offset() == 25
    second.close()


def test_positions_of_two_groups_are_apart(broker: RunningBroker, make_topic: MakeTopic) -> None:
    topic = make_topic(partitions=3)
    groups = [f"group-{uuid.uuid4().hex[:8]}" for _ in range(2)]
    for number, group in enumerate(groups):
        consumer = reader(broker.bootstrap, {"group.id": group})
        consumer.commit(offsets=[TopicPartition(topic, p, 10 * (number + 1) + p) for p in range(3)], asynchronous=False)
        consumer.close()
    for number, group in enumerate(groups):
        consumer = reader(broker.bootstrap, {"group.id": group})
        found = consumer.committed([TopicPartition(topic, p) for p in range(3)], timeout=60)
        assert [position.offset for position in found] == [10 * (number + 1) + p for p in range(3)]
        consumer.close()


def test_watermarks_of_an_empty_and_of_a_filled_partition(
    broker: RunningBroker, consumer: Consumer, make_topic: MakeTopic
) -> None:
    topic = make_topic(partitions=2)
    produce_all(
        Producer({"bootstrap.servers": broker.bootstrap}),
        [{"topic": topic, "value": b"v", "partition": 1} for _ in range(7)],
    )
    assert consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=60) == (0, 0)
    assert consumer.get_watermark_offsets(TopicPartition(topic, 1), timeout=60) == (0, 7)


def test_a_reader_that_waits_gets_a_record_when_it_comes(broker: RunningBroker, topic: str) -> None:
    """The long poll: the answer comes with the record, not with the end of fetch.wait.max.ms."""
    client = Producer({"bootstrap.servers": broker.bootstrap, "linger.ms": 0})
    produce_all(client, [{"topic": topic, "value": b"before"}])
    patient = reader(broker.bootstrap, {"fetch.wait.max.ms": 30_000, "enable.partition.eof": False})
    patient.assign([TopicPartition(topic, 0, 0)])
    assert read_some(patient, 1)[0].value() == b"before"
    # From here on the reader's fetch waits at the broker for up to 30 seconds.
    produce_all(client, [{"topic": topic, "value": b"now"}])
    assert read_some(patient, 1, timeout_s=15)[0].value() == b"now"
    patient.close()


def test_read_committed_sees_records_outside_transactions(broker: RunningBroker, filled: str) -> None:
    read = read_to_end(broker.bootstrap, filled, config={"isolation.level": "read_committed"})
    assert len(read) == 100


def test_small_fetches_return_every_record(broker: RunningBroker, topic: str) -> None:
    """A batch larger than the fetch size is returned all the same: a reader is never stuck."""
    client = Producer({"bootstrap.servers": broker.bootstrap, "linger.ms": 100})
    produce_all(client, [{"topic": topic, "value": bytes([n]) * 2000} for n in range(100)])
    read = read_to_end(
        broker.bootstrap,
        topic,
        config={"fetch.message.max.bytes": 1000, "fetch.max.bytes": 1000000, "fetch.min.bytes": 1},
    )
    assert [(message.value() or b"")[0] for message in read] == list(range(100))


def test_a_topic_that_does_not_exist_is_an_error(broker: RunningBroker, consumer: Consumer) -> None:
    metadata = consumer.list_topics("no-such-topic-here", timeout=60)
    assert metadata.topics["no-such-topic-here"].error.code() == KafkaError.UNKNOWN_TOPIC_OR_PART
    with pytest.raises(KafkaException) as failure:
        consumer.get_watermark_offsets(TopicPartition("no-such-topic-here", 0), timeout=1)
    assert failure.value.args[0].code() in (KafkaError._UNKNOWN_PARTITION, KafkaError.UNKNOWN_TOPIC_OR_PART)


def test_many_readers_of_one_partition_read_the_same(broker: RunningBroker, filled: str) -> None:
    readers = [reader(broker.bootstrap) for _ in range(5)]
    for consumer in readers:
        consumer.assign([TopicPartition(filled, 0, 0)])
    seen = [[(m.offset(), m.value()) for m in read_some(consumer, 100)] for consumer in readers]
    assert all(records == seen[0] for records in seen)
    for consumer in readers:
        consumer.close()
