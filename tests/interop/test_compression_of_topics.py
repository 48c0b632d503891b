"""Topics with a compression.type of their own, written by clients with other codecs, in and out of transactions."""

import uuid

import pytest
from confluent_kafka import Producer
from tests.conftest import MakeTopic, RunningBroker
from tests.interop.confluent_clients import produce_all, read_to_end

CODECS = ("uncompressed", "gzip", "snappy", "lz4", "zstd")


@pytest.mark.parametrize("codec", CODECS)
def test_an_idempotent_producer_with_many_batches_under_way_keeps_its_order(
    broker: RunningBroker, make_topic: MakeTopic, codec: str
) -> None:
    topic = make_topic(partitions=2, **{"compression.type": codec})
    client = Producer(
        {
            "bootstrap.servers": broker.bootstrap,
            "enable.idempotence": True,
            "compression.type": "lz4" if codec != "lz4" else "gzip",
            "batch.num.messages": 20,
            "linger.ms": 1,
        }
    )
    records = [{"topic": topic, "value": f"{number} ".encode() * 50, "partition": number % 2} for number in range(2000)]
    sent = produce_all(client, records)
    assert [message.offset() for message in sent] == [number // 2 for number in range(2000)]
    for partition in (0, 1):
        read = read_to_end(broker.bootstrap, topic, (partition,), at_least=1000, config={"check.crcs": True})
        assert [message.value() for message in read] == [record["value"] for record in records[partition::2]]


def test_transactions_are_whole_with_a_topics_own_codec(broker: RunningBroker, make_topic: MakeTopic) -> None:
    topic = make_topic(**{"compression.type": "zstd", "compression.zstd.level": "9"})
    producer = Producer(
        {"bootstrap.servers": broker.bootstrap, "transactional.id": uuid.uuid4().hex, "compression.type": "snappy"}
    )
    producer.init_transactions(60)
    for number in range(6):
        producer.begin_transaction()
        for part in range(20):
            producer.produce(topic, f"{number}-{part} ".encode() * 30)
        if number % 2:
            producer.abort_transaction(30)
        else:
            producer.commit_transaction(30)
    read = read_to_end(
        broker.bootstrap, topic, (0,), at_least=60, config={"isolation.level": "read_committed", "check.crcs": True}
    )
    assert [message.value() for message in read] == [
        f"{number}-{part} ".encode() * 30 for number in (0, 2, 4) for part in range(20)
    ]
