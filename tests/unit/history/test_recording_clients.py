"""Clients that write their own history, against a real broker: what they did is judged, also where the broker lies."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from aiokafka import TopicPartition as AIOTopicPartition
from confluent_kafka import OFFSET_BEGINNING, KafkaException, TopicPartition

from cordwood.embedded import Broker
from cordwood.history import Anomaly, Recorder, Report, check
from cordwood.history.recording.aiokafka import RecordingAIOConsumer, RecordingAIOProducer
from cordwood.history.recording.confluent import RecordingConsumer, RecordingProducer

TOPIC = "orders"


class Story:
    """A broker, and clients of confluent-kafka whose history is written to a file."""

    def __init__(self, broker: Broker, directory: Path) -> None:
        self.broker = broker
        self.path = directory / "run.jsonl"
        self.recorder = Recorder(self.path)

    def producer(self, **settings: Any) -> RecordingProducer:
        told = {"bootstrap.servers": self.broker.bootstrap_servers, "enable.idempotence": True}
        told |= {name.replace("_", "."): value for name, value in settings.items()}
        return RecordingProducer(told, recorder=self.recorder, who="p1")

    def consumer(self, who: str = "r1", **settings: Any) -> RecordingConsumer:
        told = {"group.id": who, "enable.auto.commit": False}
        told |= {name.replace("_", "."): value for name, value in settings.items()}
        if "bootstrap.servers" not in told:
            told["bootstrap.servers"] = self.broker.bootstrap_servers
        return RecordingConsumer(told, recorder=self.recorder, who=who)

    def read_all(self, **settings: Any) -> list[bytes | None]:
        consumer = self.consumer(**settings)
        consumer.assign([TopicPartition(TOPIC, 0, OFFSET_BEGINNING)])
        values = [message.value() for message in consumer.read_to_end()]
        consumer.close()
        return values

    def judged(self) -> Report:
        self.recorder.close()
        return check(self.path)


@pytest.fixture
def story(tmp_path: Path) -> Any:
    with Broker() as broker:
        yield Story(broker, tmp_path)


def test_what_is_sent_and_read_is_written_down_and_found_in_order(story: Story) -> None:
    told: list[int | None] = []
    producer = story.producer()
    for number in range(50):
        producer.produce(TOPIC, f"o{number}", key="ada", on_delivery=lambda _, message: told.append(message.offset()))
    assert producer.flush(60) == 0
    assert told == list(range(50))
    assert len(story.read_all()) == 50
    report = story.judged()
    assert (report.clean, report.notes) == (True, ())
    assert (report.totals.acked, report.totals.records_read) == (50, 50)


def test_a_record_that_is_lost_after_its_acknowledgement_is_found(story: Story) -> None:
    producer = story.producer()
    for number in range(3):
        producer.produce(TOPIC, f"o{number}")
    producer.flush(60)
    with Broker() as empty:  # in its place, without the records
        empty.log.append_many(TOPIC, [(None, "o0"), (None, "x1")])
        story.read_all(bootstrap_servers=empty.bootstrap_servers)
    found = story.judged()
    assert found.counts == {Anomaly.INCONSISTENT_OFFSETS: 1, Anomaly.LOST_WRITE: 1, Anomaly.UNSEEN: 1}
    assert [finding.value for finding in found.findings[1:]] == ["o1", "o2"]


def test_a_lost_acknowledgement_is_a_doubt_and_a_refusal_is_none(story: Story) -> None:
    producer = story.producer(message_max_bytes=2_000)
    producer.produce(TOPIC, "first")
    assert producer.flush(60) == 0
    with story.broker.faults.disconnect("Produce", carried_out=True, times=None) as fault:
        producer.produce(TOPIC, "doubtful")
        fault.wait()
        producer.purge()
        assert producer.flush(60) == 0
    with pytest.raises(KafkaException):
        producer.produce(TOPIC, b"x" * 5_000)
    assert story.read_all()[0] == b"first"
    report = story.judged()
    assert report.clean
    assert (report.totals.acked, report.totals.unknown, report.totals.failed) == (1, 1, 1)


def test_a_full_queue_is_waited_for(story: Story) -> None:
    producer = story.producer(queue_buffering_max_messages=5)
    for number in range(30):
        producer.produce(TOPIC, f"o{number}")
    assert producer.flush(60) == 0
    assert len(story.read_all()) == 30
    assert story.judged().clean


def test_transactions_are_written_down_with_their_ends(story: Story) -> None:
    producer = story.producer(transactional_id="t")
    producer.init_transactions(60)
    for number in range(4):
        producer.begin_transaction()
        producer.produce(TOPIC, f"o{number}")
        producer.flush(60)
        if number % 2:
            producer.abort_transaction(60)
        else:
            producer.commit_transaction(60)
    assert story.read_all() == [b"o0", b"o2"]
    report = story.judged()
    assert (report.clean, report.totals.transactions) == (True, 4)


def test_a_member_of_a_group_is_recorded_and_is_not_moved(story: Story) -> None:
    producer = story.producer()
    for number in range(10):
        producer.produce(TOPIC, f"o{number}")
    producer.flush(60)
    consumer = story.consumer(auto_offset_reset="earliest")
    consumer.subscribe([TOPIC])
    seen = 0
    while seen < 10:
        seen += len(consumer.consume(100, 1))
    consumer.read_to_end()
    with pytest.raises(RuntimeError, match="moved by its group alone"):
        consumer.seek(TopicPartition(TOPIC, 0, 0))
    consumer.close()
    assert story.judged().clean


def test_ends_of_partitions_are_shown_to_those_who_asked_for_them(story: Story) -> None:
    story.broker.log.append(TOPIC, None, "o0")
    quiet, asking = story.consumer("quiet"), story.consumer("asking", enable_partition_eof=True)
    for consumer in (quiet, asking):
        consumer.assign([TopicPartition(TOPIC, 0, 0)])
        message = consumer.poll(60)
        assert message is not None
        assert message.error() is None
    assert quiet.poll(0.1) is None
    end = asking.poll(60)
    assert end is not None
    assert end.error() is not None
    quiet.close()
    asking.close()


def test_values_that_are_not_unique_need_another_name(story: Story) -> None:
    with pytest.raises(TypeError, match="identify="):
        story.producer().produce(TOPIC, None, key="ada")
    recorder = story.recorder
    servers = {"bootstrap.servers": story.broker.bootstrap_servers}
    by_key = RecordingProducer(servers, recorder=recorder, who="p2", identify=lambda key, value: key)
    for number in range(3):
        by_key.produce(TOPIC, "the same", key=f"k{number}")
    by_key.flush(60)
    settings = {**servers, "group.id": "r"}
    with RecordingConsumer(settings, recorder=recorder, who="r1", identify=lambda key, value: key) as consumer:
        consumer.assign([TopicPartition(TOPIC, 0, 0)])
        assert len(consumer.read_to_end()) == 3
    assert story.judged().clean


def test_clients_of_aiokafka_write_the_same_history(story: Story) -> None:
    async def play() -> None:
        servers = story.broker.bootstrap_servers
        producer = RecordingAIOProducer(
            bootstrap_servers=servers, transactional_id="t", recorder=story.recorder, who="p1"
        )
        await producer.start()
        async with producer.transaction():
            await asyncio.gather(*[producer.send_and_wait(TOPIC, f"o{number}".encode()) for number in range(5)])
        await producer.begin_transaction()
        await producer.send_and_wait(TOPIC, b"aborted")
        await producer.abort_transaction()
        await producer.stop()
        consumer = RecordingAIOConsumer(
            bootstrap_servers=servers, isolation_level="read_committed", recorder=story.recorder, who="r1"
        )
        await consumer.start()
        consumer.assign([AIOTopicPartition(TOPIC, 0)])
        await consumer.seek_to_beginning()
        assert sorted(record.value for record in await consumer.read_to_end()) == [b"o%d" % n for n in range(5)]
        await consumer.stop()

    asyncio.run(play())
    report = story.judged()
    assert (report.clean, report.notes) == (True, ())
    assert (report.totals.acked, report.totals.records_read, report.totals.transactions) == (6, 5, 2)
