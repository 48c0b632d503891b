"""kafka-python, unmodified: produce, consume by assignment, positions and administration."""

import time
import uuid
from collections.abc import Iterator
from typing import Any

import pytest
from kafka import KafkaConsumer, KafkaProducer, TopicPartition
from kafka.admin import (
    AlterConfigOp,
    ConfigResource,
    ConfigResourceType,
    KafkaAdminClient,
    NewPartitions,
    NewTopic,
    OffsetSpec,
)
from kafka.errors import (
    InvalidTimestampError,
    MessageSizeTooLargeError,
    TopicAlreadyExistsError,
    UnknownTopicOrPartitionError,
)
from kafka.structs import OffsetAndMetadata
from tests.conftest import MakeTopic, RunningBroker
from tests.deadline import eventually

pytestmark = pytest.mark.landing

STAMP_MS = int(time.time() * 1000) - 3_600_000
"""An hour ago: retention must not find it old."""


@pytest.fixture(scope="module")
def administrator(broker: RunningBroker) -> Iterator[KafkaAdminClient]:
    client = KafkaAdminClient(bootstrap_servers=broker.bootstrap)
    yield client
    client.close()


@pytest.fixture
def consumer(broker: RunningBroker) -> Iterator[KafkaConsumer]:
    client = KafkaConsumer(
        bootstrap_servers=broker.bootstrap,
        group_id=f"group-{uuid.uuid4().hex[:8]}",
        enable_auto_commit=False,
        auto_offset_reset="none",
    )
    yield client
    client.close(autocommit=False)


def read_some(consumer: KafkaConsumer, count: int, timeout_s: float = 90) -> list[Any]:
    records: list[Any] = []
    deadline = time.monotonic() + timeout_s
    while len(records) < count:
        assert time.monotonic() < deadline, f"{len(records)} of {count} records within {timeout_s} s"
        for batch in consumer.poll(timeout_ms=200, max_records=count - len(records)).values():
            records.extend(batch)
    return records


@pytest.mark.parametrize("idempotent", [False, True], ids=["plain", "idempotent"])
@pytest.mark.parametrize("codec", [None, "gzip", "snappy", "lz4", "zstd"])
def test_every_codec(
    broker: RunningBroker, consumer: KafkaConsumer, topic: str, codec: str | None, idempotent: bool
) -> None:
    producer = KafkaProducer(
        bootstrap_servers=broker.bootstrap, compression_type=codec, enable_idempotence=idempotent, linger_ms=20
    )
    futures = [
        producer.send(topic, key=b"k%d" % n, value=b"value-%d-" % n * 20, headers=[("n", b"%d" % n)])
        for n in range(200)
    ]
    assert [future.get(timeout=60).offset for future in futures] == list(range(200))
    producer.close()
    consumer.assign([TopicPartition(topic, 0)])
    consumer.seek_to_beginning()
    read = read_some(consumer, 200)
    assert [(r.offset, r.key, r.value, list(r.headers)) for r in read] == [
        (n, b"k%d" % n, b"value-%d-" % n * 20, [("n", b"%d" % n)]) for n in range(200)
    ]


@pytest.mark.parametrize("acks", [0, 1, "all"])
def test_every_acks(broker: RunningBroker, consumer: KafkaConsumer, topic: str, acks: int | str) -> None:
    producer = KafkaProducer(bootstrap_servers=broker.bootstrap, acks=acks, enable_idempotence=False)
    for n in range(20):
        producer.send(topic, value=b"v%d" % n)
    producer.flush(timeout=60)
    producer.close()
    consumer.assign([TopicPartition(topic, 0)])
    consumer.seek_to_beginning()
    assert [r.value for r in read_some(consumer, 20)] == [b"v%d" % n for n in range(20)]


def test_nulls_and_timestamps(broker: RunningBroker, consumer: KafkaConsumer, topic: str) -> None:
    producer = KafkaProducer(bootstrap_servers=broker.bootstrap)
    producer.send(topic, key=None, value=b"", timestamp_ms=STAMP_MS).get(timeout=60)
    producer.send(topic, key=b"k", value=None, timestamp_ms=STAMP_MS + 5).get(timeout=60)
    producer.close()
    consumer.assign([TopicPartition(topic, 0)])
    consumer.seek_to_beginning()
    first, second = read_some(consumer, 2)
    assert (first.key, first.value, first.timestamp) == (None, b"", STAMP_MS)
    assert (second.key, second.value, second.timestamp) == (b"k", None, STAMP_MS + 5)


def test_refusals_have_their_reason(broker: RunningBroker, make_topic: MakeTopic) -> None:
    small = make_topic(**{"max.message.bytes": "20000", "message.timestamp.after.max.ms": "60000"})
    producer = KafkaProducer(bootstrap_servers=broker.bootstrap, enable_idempotence=False)
    with pytest.raises(MessageSizeTooLargeError):
        producer.send(small, value=b"x" * 50_000).get(timeout=60)
    with pytest.raises(InvalidTimestampError):
        producer.send(small, value=b"x", timestamp_ms=int(time.time() * 1000) + 3_600_000).get(timeout=60)
    producer.close()


def test_reading_from_anywhere(broker: RunningBroker, consumer: KafkaConsumer, topic: str) -> None:
    producer = KafkaProducer(bootstrap_servers=broker.bootstrap)
    for n in range(50):
        producer.send(topic, value=b"v%d" % n, timestamp_ms=STAMP_MS + 1000 * n)
    producer.flush(timeout=60)
    producer.close()
    partition = TopicPartition(topic, 0)
    assert consumer.beginning_offsets([partition]) == {partition: 0}
    assert consumer.end_offsets([partition]) == {partition: 50}
    found = consumer.offsets_for_times({partition: STAMP_MS + 17_500})[partition]
    assert (found.offset, found.timestamp) == (18, STAMP_MS + 18_000)
    assert consumer.offsets_for_times({partition: STAMP_MS + 10**9})[partition] is None
    consumer.assign([partition])
    consumer.seek(partition, found.offset)
    assert read_some(consumer, 1)[0].value == b"v18"
    consumer.seek(partition, 49)
    assert read_some(consumer, 1)[0].value == b"v49"
    consumer.seek_to_end(partition)
    assert consumer.position(partition) == 50
    assert consumer.highwater(partition) == 50


def test_positions_without_members(consumer: KafkaConsumer, topic: str) -> None:
    partition = TopicPartition(topic, 0)
    consumer.assign([partition])
    assert consumer.committed(partition) is None
    consumer.commit({partition: OffsetAndMetadata(7, "seven", -1)})
    assert consumer.committed(partition) == 7
    assert consumer.committed(partition, metadata=True).metadata == "seven"


class TestAdministration:
    def test_topics(self, administrator: KafkaAdminClient) -> None:
        name = f"admin-{uuid.uuid4().hex[:12]}"
        administrator.create_topics([NewTopic(name, num_partitions=2, replication_factor=1)])
        with pytest.raises(TopicAlreadyExistsError):
            administrator.create_topics([NewTopic(name, num_partitions=2, replication_factor=1)])
        eventually(lambda: name in administrator.list_topics(), what="the topic")
        (described,) = administrator.describe_topics([name])
        assert len(described["partitions"]) == 2
        administrator.create_partitions({name: NewPartitions(5)})
        eventually(lambda: len(administrator.describe_topics([name])[0]["partitions"]), to_be=5, what="5 partitions")
        administrator.delete_topics([name])
        eventually(lambda: name not in administrator.list_topics(), what="the topic's absence")
        with pytest.raises(UnknownTopicOrPartitionError):
            administrator.delete_topics([name])

    def test_describe_topic_partitions(self, administrator: KafkaAdminClient, make_topic: MakeTopic) -> None:
        name = make_topic(partitions=3)
        answer = administrator.describe_topic_partitions([name])
        (topic,) = answer["topics"]
        assert topic["name"] == name
        assert [partition["partition_index"] for partition in topic["partitions"]] == [0, 1, 2]

    def test_configs(self, administrator: KafkaAdminClient, topic: str) -> None:
        resource = ConfigResource(ConfigResourceType.TOPIC, topic)

        def shown(name: str) -> str:
            answer = administrator.describe_configs([resource], config_filter="all")
            value: str = answer["topic"][topic][name]["value"]
            return value

        assert shown("retention.ms") == "604800000"
        administrator.alter_configs(
            [ConfigResource(ConfigResourceType.TOPIC, topic, {"retention.ms": (AlterConfigOp.SET, "86400000")})]
        )
        eventually(lambda: shown("retention.ms"), to_be="86400000", what="the new value")
        administrator.reset_configs([ConfigResource(ConfigResourceType.TOPIC, topic, ["retention.ms"])])
        eventually(lambda: shown("retention.ms"), to_be="604800000", what="the default")

    def test_list_config_resources(self, administrator: KafkaAdminClient, topic: str) -> None:
        answer = str(administrator.list_config_resources())
        assert topic in answer

    def test_records_and_offsets(
        self, administrator: KafkaAdminClient, broker: RunningBroker, consumer: KafkaConsumer, topic: str
    ) -> None:
        producer = KafkaProducer(bootstrap_servers=broker.bootstrap)
        for n, stamp in enumerate([0, 9000, 1000]):
            producer.send(topic, value=b"v%d" % n, timestamp_ms=STAMP_MS + stamp).get(timeout=60)
        producer.close()
        partition = TopicPartition(topic, 0)

        def offset(spec: object) -> int:
            found: int = administrator.list_partition_offsets({partition: spec})[partition].offset
            return found

        assert offset(OffsetSpec.EARLIEST) == 0
        assert offset(OffsetSpec.LATEST) == 3
        assert offset(OffsetSpec.MAX_TIMESTAMP) == 1
        assert offset(OffsetSpec.EARLIEST_LOCAL) == 0
        administrator.delete_records({partition: 2})
        assert offset(OffsetSpec.EARLIEST) == 2
        consumer.assign([partition])
        consumer.seek_to_beginning()
        assert [r.value for r in read_some(consumer, 1)] == [b"v2"]

    def test_group_positions(self, administrator: KafkaAdminClient, topic: str) -> None:
        group = f"group-{uuid.uuid4().hex[:8]}"
        partition = TopicPartition(topic, 0)
        administrator.alter_group_offsets(group, {partition: OffsetAndMetadata(0, "", -1)})
        listed = administrator.list_group_offsets({group: [partition]})
        assert listed[group][partition].offset == 0

    def test_cluster(self, administrator: KafkaAdminClient, broker: RunningBroker) -> None:
        cluster = administrator.describe_cluster()
        assert cluster["cluster_id"]
        assert [(node["host"], node["port"]) for node in cluster["brokers"]] == [(broker.host, broker.port)]

    def test_log_directories(self, administrator: KafkaAdminClient, broker: RunningBroker, topic: str) -> None:
        producer = KafkaProducer(bootstrap_servers=broker.bootstrap)
        producer.send(topic, value=b"x" * 5000).get(timeout=60)
        producer.close()
        partitions = [
            (entry["name"], partition["partition_index"], partition["partition_size"])
            for directories in administrator.describe_log_dirs()
            for directory in directories["log_dirs"]
            for entry in directory["topics"]
            for partition in entry["partitions"]
        ]
        (size,) = [size for name, index, size in partitions if (name, index) == (topic, 0)]
        assert size > 5000

    def test_producers(self, administrator: KafkaAdminClient, broker: RunningBroker, topic: str) -> None:
        producer = KafkaProducer(bootstrap_servers=broker.bootstrap, enable_idempotence=True)
        for _ in range(3):
            producer.send(topic, value=b"v").get(timeout=60)
        producer.close()
        partition = TopicPartition(topic, 0)
        (state,) = administrator.describe_producers([partition])[partition].active_producers
        assert state.last_sequence == 2
        assert state.producer_id >= 0


def test_a_transaction_is_committed_or_aborted_whole_with_its_positions(
    broker: RunningBroker, topic: str, consumer: KafkaConsumer
) -> None:
    partition = TopicPartition(topic, 0)
    group = consumer.config["group_id"]
    producer = KafkaProducer(
        bootstrap_servers=broker.bootstrap, transactional_id=f"writer-{uuid.uuid4().hex[:8]}", linger_ms=0
    )
    producer.init_transactions()
    for number in range(4):
        producer.begin_transaction()
        producer.send(topic, f"value-{number}".encode()).get(timeout=60)
        producer.send_offsets_to_transaction({partition: OffsetAndMetadata(number + 1, "", -1)}, group)
        if number % 2:
            producer.abort_transaction()
        else:
            producer.commit_transaction()
    producer.close()
    eventually(lambda: consumer.committed(partition), to_be=3, what="the committed position")
    reader = KafkaConsumer(
        bootstrap_servers=broker.bootstrap, isolation_level="read_committed", auto_offset_reset="earliest"
    )
    reader.assign([partition])
    reader.seek(partition, 0)
    found: list[Any] = []

    def have_both() -> bool:
        found.extend(record for records in reader.poll(timeout_ms=200).values() for record in records)
        return len(found) >= 2

    eventually(have_both, what="the committed records")
    assert [record.value for record in found] == [b"value-0", b"value-2"]
    reader.close()
