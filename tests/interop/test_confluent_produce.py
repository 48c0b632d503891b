"""Producing with confluent-kafka (librdkafka): what was sent is what is read, however it was sent."""

import time
from typing import Any

import pytest
from confluent_kafka import (
    TIMESTAMP_CREATE_TIME,
    TIMESTAMP_LOG_APPEND_TIME,
    KafkaError,
    KafkaException,
    Message,
    Producer,
)
from tests.conftest import MakeTopic, RunningBroker
from tests.deadline import eventually
from tests.interop.confluent_clients import produce_all, read_to_end

pytestmark = pytest.mark.landing

CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]


def producer(broker: RunningBroker, **config: Any) -> Producer:
    return Producer({"bootstrap.servers": broker.bootstrap, **config})


def content(message: Message) -> tuple[bytes | None, bytes | None, list[Any]]:
    return message.key(), message.value(), list(message.headers() or [])


@pytest.mark.parametrize("idempotent", [False, True], ids=["plain", "idempotent"])
@pytest.mark.parametrize("codec", CODECS)
def test_every_codec(broker: RunningBroker, topic: str, codec: str, idempotent: bool) -> None:
    client = producer(broker, **{"compression.type": codec, "enable.idempotence": idempotent, "linger.ms": 20})
    sent = [(f"key-{n}".encode(), f"value-{n}-".encode() * 20, [("n", str(n).encode())]) for n in range(500)]
    acked = produce_all(client, [{"topic": topic, "key": k, "value": v, "headers": h} for k, v, h in sent])
    assert [message.offset() for message in acked] == list(range(500))
    read = read_to_end(broker.bootstrap, topic)
    assert [content(message) for message in read] == sent
    assert [message.offset() for message in read] == list(range(500))


@pytest.mark.parametrize("acks", ["all", "1"])
def test_acks_that_are_answered_carry_offsets(broker: RunningBroker, topic: str, acks: str) -> None:
    acked = produce_all(producer(broker, acks=acks), [{"topic": topic, "value": f"v{n}"} for n in range(50)])
    assert [message.offset() for message in acked] == list(range(50))
    assert [message.value() for message in read_to_end(broker.bootstrap, topic)] == [b"v%d" % n for n in range(50)]


def test_acks_0_arrives_without_an_answer(broker: RunningBroker, topic: str) -> None:
    produce_all(producer(broker, acks="0"), [{"topic": topic, "value": f"v{n}"} for n in range(50)])
    read = eventually(
        lambda: (found := read_to_end(broker.bootstrap, topic)) and len(found) == 50 and found, what="50 records"
    )
    assert read
    assert [message.value() for message in read] == [b"v%d" % n for n in range(50)]


@pytest.mark.parametrize(
    ("key", "value"), [(None, None), (None, b"v"), (b"k", None), (b"", b""), (b"k", b""), (None, b"")]
)
def test_null_and_empty_are_different(
    broker: RunningBroker, topic: str, key: bytes | None, value: bytes | None
) -> None:
    produce_all(producer(broker), [{"topic": topic, "key": key, "value": value}])
    (message,) = read_to_end(broker.bootstrap, topic)
    assert (message.key(), message.value()) == (key, value)


def test_headers_keep_order_duplicates_nulls_and_bytes(broker: RunningBroker, topic: str) -> None:
    headers = [("b", b"1"), ("a", None), ("b", b""), ("ü-header", bytes(range(256))), ("", b"no name")]
    produce_all(producer(broker), [{"topic": topic, "value": b"v", "headers": headers}])
    (message,) = read_to_end(broker.bootstrap, topic)
    assert message.headers() == headers


def test_the_producers_timestamp_is_kept(broker: RunningBroker, topic: str) -> None:
    now_ms = int(time.time() * 1000)  # not older than retention allows
    stamps = [now_ms - 7_200_000, now_ms - 123, now_ms - 86_400_000]
    produce_all(producer(broker), [{"topic": topic, "value": b"v", "timestamp": stamp} for stamp in stamps])
    read = read_to_end(broker.bootstrap, topic)
    assert [message.timestamp() for message in read] == [(TIMESTAMP_CREATE_TIME, stamp) for stamp in stamps]


def test_the_brokers_timestamp_where_the_topic_says_so(broker: RunningBroker, make_topic: MakeTopic) -> None:
    topic = make_topic(**{"message.timestamp.type": "LogAppendTime"})
    before_ms = int(time.time() * 1000)
    acked = produce_all(producer(broker), [{"topic": topic, "value": b"v", "timestamp": 1_500_000_000_000}])
    after_ms = int(time.time() * 1000)
    (message,) = read_to_end(broker.bootstrap, topic)
    kind, stamp = message.timestamp()
    assert kind == TIMESTAMP_LOG_APPEND_TIME
    assert before_ms <= stamp <= after_ms
    assert acked[0].timestamp() == (TIMESTAMP_LOG_APPEND_TIME, stamp)


def test_a_timestamp_too_far_ahead_is_refused(broker: RunningBroker, make_topic: MakeTopic) -> None:
    topic = make_topic(**{"message.timestamp.after.max.ms": "60000"})
    ahead_ms = int(time.time() * 1000) + 3_600_000
    with pytest.raises(KafkaException) as failure:
        produce_all(producer(broker), [{"topic": topic, "value": b"v", "timestamp": ahead_ms}])
    assert failure.value.args[0].code() == KafkaError.INVALID_TIMESTAMP


def test_big_batches_and_big_messages(broker: RunningBroker, make_topic: MakeTopic) -> None:
    topic = make_topic(**{"max.message.bytes": str(8 << 20)})
    client = producer(
        broker,
        **{"batch.size": 7 << 20, "linger.ms": 100, "message.max.bytes": 8 << 20, "compression.type": "none"},
    )
    values = [bytes([n]) * (900_000 + n) for n in range(20)] + [b"\xfe" * (6 << 20)]
    produce_all(client, [{"topic": topic, "value": value} for value in values], timeout_s=60)
    read = read_to_end(broker.bootstrap, topic, config={"fetch.message.max.bytes": 1 << 20})
    assert [len(message.value() or b"") for message in read] == [len(value) for value in values]
    assert [message.value() for message in read] == values


def test_a_message_beyond_the_topics_limit_is_refused_and_the_next_one_is_not(
    broker: RunningBroker, make_topic: MakeTopic
) -> None:
    topic = make_topic(**{"max.message.bytes": "20000"})
    client = producer(broker, **{"linger.ms": 0})
    with pytest.raises(KafkaException) as failure:
        produce_all(client, [{"topic": topic, "value": b"x" * 50_000}])
    assert failure.value.args[0].code() == KafkaError.MSG_SIZE_TOO_LARGE
    produce_all(client, [{"topic": topic, "value": b"small"}])
    assert [message.value() for message in read_to_end(broker.bootstrap, topic)] == [b"small"]


def test_a_compacted_topic_wants_keys(broker: RunningBroker, make_topic: MakeTopic) -> None:
    topic = make_topic(**{"cleanup.policy": "compact"})
    with pytest.raises(KafkaException) as failure:
        produce_all(producer(broker), [{"topic": topic, "value": b"no key"}])
    assert failure.value.args[0].code() == KafkaError.INVALID_RECORD
    produce_all(producer(broker), [{"topic": topic, "key": b"k", "value": b"v"}])


def test_keys_decide_the_partition_and_order_holds_within_it(broker: RunningBroker, make_topic: MakeTopic) -> None:
    topic = make_topic(partitions=4)
    sent = [{"topic": topic, "key": f"k{n % 10}", "value": str(n)} for n in range(400)]
    acked = produce_all(producer(broker, **{"enable.idempotence": True}), sent)
    where: dict[bytes | None, int | None] = {}
    for message in acked:
        assert where.setdefault(message.key(), message.partition()) == message.partition()
    read = read_to_end(broker.bootstrap, topic, range(4))
    assert len(read) == 400
    for key in {message.key() for message in read}:
        numbers = [int(message.value() or b"") for message in read if message.key() == key]
        assert numbers == sorted(numbers)
        assert len(numbers) == 40


def test_many_partitions_in_one_request(broker: RunningBroker, make_topic: MakeTopic) -> None:
    topic = make_topic(partitions=50)
    client = producer(broker, **{"linger.ms": 50})
    produce_all(client, [{"topic": topic, "value": f"{p}-{n}", "partition": p} for n in range(20) for p in range(50)])
    read = read_to_end(broker.bootstrap, topic, range(50))
    for partition in range(50):
        values = [message.value() for message in read if message.partition() == partition]
        assert values == [f"{partition}-{n}".encode() for n in range(20)]


def test_two_idempotent_producers_do_not_disturb_each_other(broker: RunningBroker, topic: str) -> None:
    one, two = (producer(broker, **{"enable.idempotence": True, "linger.ms": 0}) for _ in range(2))
    for round_number in range(5):
        produce_all(one, [{"topic": topic, "value": f"one-{round_number}-{n}"} for n in range(20)])
        produce_all(two, [{"topic": topic, "value": f"two-{round_number}-{n}"} for n in range(20)])
    values = [message.value() for message in read_to_end(broker.bootstrap, topic)]
    assert len(values) == len(set(values)) == 200


def test_producing_to_a_topic_that_does_not_exist_creates_it(broker: RunningBroker) -> None:
    name = f"auto-{time.time_ns()}"
    produce_all(producer(broker), [{"topic": name, "value": b"first"}])
    assert [message.value() for message in read_to_end(broker.bootstrap, name)] == [b"first"]


def test_a_partition_that_does_not_exist_is_refused(broker: RunningBroker, topic: str) -> None:
    with pytest.raises(KafkaException) as failure:
        produce_all(
            producer(broker, **{"topic.metadata.propagation.max.ms": 200, "message.timeout.ms": 5000}),
            [{"topic": topic, "value": b"v", "partition": 7}],
        )
    assert failure.value.args[0].code() == KafkaError._UNKNOWN_PARTITION
