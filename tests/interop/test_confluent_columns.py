"""Columns and confluent-kafka (librdkafka): what it wrote is decoded as it reads it, what we encode it reads, and keys
go to the same partitions.
"""

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from confluent_kafka import Message, Producer
from tests.conftest import MakeTopic, RunningBroker
from tests.interop.confluent_clients import produce_all, read_to_end
from tests.unit.columnar.rows import Row, rows

from cordwood.client.cluster import LATEST, Cluster, Isolation
from cordwood.client.settings import ClientSettings
from cordwood.columnar.columns import HEADERS
from cordwood.columnar.decoding import Decoder
from cordwood.columnar.encoding import OutgoingRows
from cordwood.columnar.partitioning import murmur2_partitions, rows_by_partition
from cordwood.model.identifiers import TopicPartition
from cordwood.records.batch import Codec

CODECS = {codec.name.lower(): codec for codec in Codec}
TIMEOUT_S = 60


def decoded(broker: RunningBroker, topic: str, isolation: Isolation = Isolation.READ_UNCOMMITTED) -> list[Row]:
    """All records of the only partition, through columns."""
    partition = TopicPartition(topic, 0)
    found: list[Row] = []
    with Cluster(ClientSettings(broker.bootstrap)) as cluster:
        end = cluster.list_offsets({partition: LATEST}, isolation)[partition].offset
        for fetched in cluster.stream(partition, 0, end, isolation=isolation):
            found += rows(
                Decoder(headers=True).decode(
                    fetched.records,
                    start_offset=0,
                    end_offset=end,
                    aborted=fetched.aborted,
                    read_committed=isolation is Isolation.READ_COMMITTED,
                )
            )
    return found


def as_row(message: Message) -> Row:
    kind, timestamp_ms = message.timestamp()
    headers: Any = message.headers() or []
    offset = message.offset()
    assert offset is not None
    return Row(offset, timestamp_ms * 1000, kind - 1, message.key(), message.value(), list(headers))


@pytest.mark.landing
@pytest.mark.parametrize("codec", CODECS)
def test_what_librdkafka_writes_is_decoded_as_it_reads_it(
    broker: RunningBroker, make_topic: MakeTopic, codec: str
) -> None:
    topic = make_topic(**{"message.timestamp.type": "LogAppendTime"} if codec == "lz4" else {})
    producer = Producer({"bootstrap.servers": broker.bootstrap, "compression.type": codec, "linger.ms": 20})
    records = [
        {
            "topic": topic,
            "key": None if number % 5 == 0 else b"key %d" % number,
            "value": None if number % 7 == 0 else b"value %d " % number * (number % 50),
            "headers": [("origin", b"%d" % number), ("naïve ✓", None)] if number % 3 == 0 else None,
        }
        for number in range(1000)
    ]
    produce_all(producer, records)
    messages = read_to_end(broker.bootstrap, topic, (0,))
    assert len(messages) == len(records)
    assert decoded(broker, topic) == [as_row(message) for message in messages]


def test_what_librdkafka_aborted_is_not_decoded(broker: RunningBroker, topic: str) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": f"columns-{topic}", "linger.ms": 0})
    producer.init_transactions(TIMEOUT_S)
    for number in range(6):
        producer.begin_transaction()
        for part in range(number + 1):
            producer.produce(topic, f"{number}.{part}")
        assert producer.flush(TIMEOUT_S) == 0
        if number % 2:
            producer.abort_transaction(TIMEOUT_S)
        else:
            producer.commit_transaction(TIMEOUT_S)
    config = {"isolation.level": "read_committed"}
    committed = read_to_end(broker.bootstrap, topic, (0,), at_least=1 + 3 + 5, config=config)
    assert [row.value for row in decoded(broker, topic, Isolation.READ_COMMITTED)] == [
        message.value() for message in committed
    ]
    assert len(committed) == 1 + 3 + 5
    assert len(decoded(broker, topic)) == 21


@pytest.mark.parametrize("codec", CODECS)
def test_what_we_encode_librdkafka_reads(broker: RunningBroker, make_topic: MakeTopic, codec: str) -> None:
    topic = make_topic(partitions=3)
    keys = [f"key {number % 17}" for number in range(500)]
    values = [None if number % 9 == 0 else b"%d" % number * 30 for number in range(500)]
    headers = [[{"key": "row", "value": b"%d" % number}] if number % 4 == 0 else None for number in range(500)]
    times = np.arange(500) + 1_700_000_000_000
    outgoing = OutgoingRows(pa.array(keys), pa.array(values), pa.array(headers, HEADERS), times)
    partitions = rows_by_partition(murmur2_partitions(pa.array(keys), 3), 3)
    with Cluster(ClientSettings(broker.bootstrap)) as cluster:
        cluster.produce(
            {
                TopicPartition(topic, partition): [
                    batch.data for batch in outgoing.encode(chosen, codec=CODECS[codec], max_batch_bytes=5000)
                ]
                for partition, chosen in partitions
            }
        )
    for partition, chosen in partitions:
        messages = read_to_end(broker.bootstrap, topic, (partition,))
        assert [(message.key(), message.value()) for message in messages] == [
            (keys[row].encode(), values[row]) for row in chosen
        ]
        assert [message.timestamp()[1] for message in messages] == times[chosen].tolist()
        assert [message.headers() for message in messages] == [
            [("row", b"%d" % row)] if row % 4 == 0 else None for row in chosen
        ]


def test_keys_go_to_the_partitions_of_librdkafkas_murmur2(broker: RunningBroker, make_topic: MakeTopic) -> None:
    partition_count = 7
    topic = make_topic(partitions=partition_count)
    keys = [b"%d" % number * (number % 11) for number in range(1, 200)]
    producer = Producer({"bootstrap.servers": broker.bootstrap, "partitioner": "murmur2"})
    messages = produce_all(producer, [{"topic": topic, "key": key, "value": b""} for key in keys])
    assert [message.partition() for message in messages] == murmur2_partitions(pa.array(keys), partition_count).tolist()
    assert len({message.partition() for message in messages}) == partition_count
