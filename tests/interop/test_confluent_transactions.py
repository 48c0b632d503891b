"""Transactions of confluent-kafka (librdkafka, transaction version 1): committed whole, aborted whole, one producer."""

import contextlib
import uuid

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition
from tests.conftest import MakeTopic, RunningBroker
from tests.deadline import eventually
from tests.interop.confluent_clients import read_to_end, reader

from cordwood.embedded import Broker

pytestmark = pytest.mark.landing

COMMITTED = {"isolation.level": "read_committed"}
TIMEOUT_S = 60


def transactional(broker: RunningBroker, transactional_id: str = "", timeout_ms: int = 60_000) -> Producer:
    producer = Producer(
        {
            "bootstrap.servers": broker.bootstrap,
            "transactional.id": transactional_id or f"writer-{uuid.uuid4().hex[:8]}",
            "transaction.timeout.ms": timeout_ms,
            "linger.ms": 0,
        }
    )
    producer.init_transactions(TIMEOUT_S)
    return producer


def write(producer: Producer, topic: str, *values: str, partition: int = 0) -> None:
    for value in values:
        producer.produce(topic, value, partition=partition)
    assert producer.flush(TIMEOUT_S) == 0


def values(
    broker: RunningBroker, topic: str, partition: int = 0, at_least: int = 0, isolation: str = "read_committed"
) -> list[str]:
    config = {"isolation.level": isolation}
    messages = read_to_end(broker.bootstrap, topic, (partition,), at_least=at_least, config=config)
    return [(message.value() or b"").decode() for message in messages]


def test_what_is_committed_is_read_and_what_is_aborted_is_not(broker: RunningBroker, make_topic: MakeTopic) -> None:
    topic = make_topic(partitions=2)
    producer = transactional(broker)
    for number in range(4):
        producer.begin_transaction()
        write(producer, topic, f"first-{number}")
        write(producer, topic, f"second-{number}", partition=1)
        if number % 2:
            producer.abort_transaction(TIMEOUT_S)
        else:
            producer.commit_transaction(TIMEOUT_S)
    assert values(broker, topic, 0, 2) == ["first-0", "first-2"]
    assert values(broker, topic, 1, 2) == ["second-0", "second-2"]
    assert values(broker, topic, 0, isolation="read_uncommitted") == [f"first-{number}" for number in range(4)]


def test_an_open_transaction_holds_back_what_comes_after_it(broker: RunningBroker, topic: str) -> None:
    producer, plain = transactional(broker), Producer({"bootstrap.servers": broker.bootstrap})
    producer.begin_transaction()
    write(producer, topic, "inside")
    plain.produce(topic, "outside")
    assert plain.flush(TIMEOUT_S) == 0
    assert values(broker, topic) == []
    assert values(broker, topic, isolation="read_uncommitted") == ["inside", "outside"]
    consumer = reader(broker.bootstrap, COMMITTED)
    assert consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=TIMEOUT_S) == (0, 0)
    producer.commit_transaction(TIMEOUT_S)
    assert values(broker, topic, at_least=2) == ["inside", "outside"]
    assert consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=TIMEOUT_S) == (0, 3)
    consumer.close()


def test_a_new_producer_of_the_same_id_aborts_and_fences_the_old_one(broker: RunningBroker, topic: str) -> None:
    transactional_id = f"writer-{uuid.uuid4().hex[:8]}"
    old = transactional(broker, transactional_id)
    old.begin_transaction()
    write(old, topic, "of the old one")
    new = transactional(broker, transactional_id)
    new.begin_transaction()
    write(new, topic, "of the new one")
    new.commit_transaction(TIMEOUT_S)
    with pytest.raises(KafkaException) as refused:
        old.commit_transaction(TIMEOUT_S)
    assert refused.value.args[0].fatal()
    assert values(broker, topic, at_least=1) == ["of the new one"]


def test_positions_move_with_the_transaction_that_commits_them(broker: RunningBroker, make_topic: MakeTopic) -> None:
    source, target = make_topic(), make_topic()
    group = f"group-{uuid.uuid4().hex[:8]}"
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": group, "enable.auto.commit": False})
    consumer.assign([TopicPartition(source, 0, 0)])
    producer = transactional(broker)

    def committed() -> int:
        (position,) = consumer.committed([TopicPartition(source, 0)], timeout=TIMEOUT_S)
        return int(position.offset)

    for offset, commit in ((5, True), (9, False), (7, True)):
        before = committed()
        producer.begin_transaction()
        write(producer, target, f"up to {offset}")
        moved = [TopicPartition(source, 0, offset)]
        producer.send_offsets_to_transaction(moved, consumer.consumer_group_metadata(), TIMEOUT_S)
        if commit:
            producer.commit_transaction(TIMEOUT_S)
        else:
            producer.abort_transaction(TIMEOUT_S)
        assert eventually(committed, what="the position") == (offset if commit else before)
    assert values(broker, target, at_least=2) == ["up to 5", "up to 7"]
    consumer.close()


def test_positions_alone_make_a_transaction(broker: RunningBroker, topic: str) -> None:
    group = f"group-{uuid.uuid4().hex[:8]}"
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": group, "enable.auto.commit": False})
    producer = transactional(broker)
    producer.begin_transaction()
    producer.send_offsets_to_transaction([TopicPartition(topic, 0, 3)], consumer.consumer_group_metadata(), TIMEOUT_S)
    producer.commit_transaction(TIMEOUT_S)
    (position,) = consumer.committed([TopicPartition(topic, 0)], timeout=TIMEOUT_S)
    assert position.offset == 3
    consumer.close()


def test_many_transactions_in_a_row(broker: RunningBroker, make_topic: MakeTopic) -> None:
    topic = make_topic(partitions=3)
    producer = transactional(broker)
    wanted: dict[int, list[str]] = {0: [], 1: [], 2: []}
    for number in range(60):
        producer.begin_transaction()
        for partition in wanted:
            for part in range(3):
                producer.produce(topic, f"{number}.{part}", partition=partition)
        if number % 7 == 3:
            producer.abort_transaction(TIMEOUT_S)
            continue
        producer.commit_transaction(TIMEOUT_S)
        for texts in wanted.values():
            texts += [f"{number}.{part}" for part in range(3)]
    for partition, texts in wanted.items():
        assert values(broker, topic, partition, len(texts)) == texts


def test_a_timeout_that_is_too_long_is_refused(broker: RunningBroker) -> None:
    with pytest.raises(KafkaException) as refused:
        transactional(broker, timeout_ms=1_000_000)
    assert refused.value.args[0].name() in ("INVALID_TRANSACTION_TIMEOUT", "_FATAL")


def test_no_record_is_acknowledged_in_the_place_of_one_that_was_aborted() -> None:
    """An abort purges records that wait to be sent again. librdkafka gives their sequence numbers to the records of the
    next transaction, though the first attempt is in the log: these records must not count as its repetition."""
    with Broker() as broker:
        patient = {"retry.backoff.ms": 1000, "retry.backoff.max.ms": 1000}
        producer = Producer(
            {"bootstrap.servers": broker.bootstrap_servers, "transactional.id": "writer", "log_level": 0, **patient}
        )
        producer.init_transactions(TIMEOUT_S)
        acknowledged: list[str] = []

        def delivered(error: KafkaError | None, message: Message) -> None:
            if error is None:
                acknowledged.append((message.value() or b"").decode())

        producer.begin_transaction()
        unanswered = broker.faults.disconnect("Produce", carried_out=True)
        producer.produce("orders", "aborted", partition=0)
        unanswered.wait()

        def aborted() -> bool:
            producer.poll(0.1)
            try:
                producer.abort_transaction(1)
            except KafkaException:
                return False
            return True

        eventually(aborted, what="the abort")
        committed: list[str] = []
        with contextlib.suppress(KafkaException):  # a fatal error
            producer.begin_transaction()
            producer.produce("orders", "next", partition=0, on_delivery=delivered)
            producer.commit_transaction(TIMEOUT_S)
            committed.append("next")
        producer.poll(0)
        read = read_to_end(broker.bootstrap_servers, "orders", (0,), at_least=len(committed), config=COMMITTED)
        assert [(message.value() or b"").decode() for message in read] == committed
        assert acknowledged == committed
