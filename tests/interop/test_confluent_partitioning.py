"""Rows go to the partitions that librdkafka sends the same keys to, by the partitioner that is the Java client's."""

import pyarrow as pa
from confluent_kafka import KafkaError, Message, Producer
from tests.conftest import MakeTopic, RunningBroker

from cordwood.columnar.partitioning import murmur2_partitions


def test_partitions_of_keys_are_those_of_librdkafkas_murmur2(broker: RunningBroker, make_topic: MakeTopic) -> None:
    partition_count = 7
    topic = make_topic(partitions=partition_count)
    keys = [b"%d" % number * (number % 11) for number in range(1, 200)]
    delivered: dict[bytes | None, int | None] = {}

    def note(error: KafkaError | None, message: Message) -> None:
        assert error is None, error
        delivered[message.key()] = message.partition()

    producer = Producer({"bootstrap.servers": broker.bootstrap, "partitioner": "murmur2"})
    for key in keys:
        producer.produce(topic, key=key, value=b"", on_delivery=note)
    assert producer.flush(60) == 0
    assert [delivered[key] for key in keys] == murmur2_partitions(pa.array(keys), partition_count).tolist()
    assert len(set(delivered.values())) == partition_count
