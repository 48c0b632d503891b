"""A broker of its own for the fuzzers, real clients' frames to start from, and what must hold afterwards."""

import asyncio
import os
import uuid
from collections.abc import Iterator
from dataclasses import dataclass

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka import TopicPartition as AIOTopicPartition
from aiokafka.admin import AIOKafkaAdminClient
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic, OffsetSpec
from kafka import KafkaConsumer, KafkaProducer
from kafka import TopicPartition as KafkaTopicPartition
from kafka.admin import KafkaAdminClient
from tests.broker_process import BrokerProcess, free_port
from tests.deadline import eventually
from tests.fuzz.recording_proxy import RecordingProxy
from tests.interop.confluent_clients import produce_all, read_to_end
from tests.seeds import FIRST_SEED

ROUNDS = int(os.environ.get("CORDWOOD_FUZZ_ROUNDS", "1"))
"""How many times more frames than every test run sends."""

SEED = int(os.environ.get("CORDWOOD_FUZZ_SEED", "0")) or FIRST_SEED or 20260101

MAX_GROWTH_BYTES = 64 << 20
MAX_REQUEST_BYTES = 1 << 20
IDLE_MS = 4000


@dataclass
class Target:
    """The broker under fire."""

    process: BrokerProcess
    proxy: RecordingProxy

    @property
    def bootstrap(self) -> str:
        return self.process.bootstrap

    def assert_serves(self) -> None:
        """An ordinary client still creates a topic, writes and reads; the broker has not become large."""
        assert self.process.alive, self.process.output()[-8000:]
        # A peer's fault is an error code or a close; a traceback is a fault of the broker's own.
        assert "Traceback" not in self.process.output(), self.process.output()[-8000:]
        name = f"after-{uuid.uuid4().hex[:12]}"
        admin = AdminClient({"bootstrap.servers": self.bootstrap})
        admin.create_topics([NewTopic(name, 1, 1)], operation_timeout=20)[name].result(120)
        client = Producer({"bootstrap.servers": self.bootstrap, "enable.idempotence": True})
        produce_all(client, [{"topic": name, "value": f"v{n}"} for n in range(10)])
        read = read_to_end(self.bootstrap, name)
        assert [message.value() for message in read] == [b"v%d" % n for n in range(10)]


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
    directory = tmp_path_factory.mktemp("fuzz")
    proxy = RecordingProxy(free_port())
    process = BrokerProcess(
        directory / "data",
        output=directory / "output",
        settings={
            "advertised.listeners": f"PLAINTEXT://{proxy.bootstrap}",
            "connections.max.idle.ms": str(IDLE_MS),
            "max.connections": "500",
            "offsets.topic.num.partitions": "3",
            "queued.max.request.bytes": str(8 << 20),
            "socket.request.max.bytes": str(MAX_REQUEST_BYTES),
            "tail.memory.max.bytes": str(8 << 20),
        },
    )
    process.start()
    proxy.start(process.bootstrap)
    yield Target(process, proxy)
    try:
        assert process.alive, f"the broker died:\n{process.output()[-8000:]}"
        assert process.stop() == 0, process.output()[-8000:]
    finally:
        proxy.close()
        process.kill()


@pytest.fixture(scope="module")
def real_frames(target: Target) -> list[bytes]:
    """Requests as three clients send them, of all the APIs that they use here."""
    bootstrap = target.proxy.bootstrap
    _confluent_session(bootstrap)
    for protocol in ("classic", "consumer"):
        _group_session(bootstrap, protocol)
    _kafka_python_session(bootstrap)
    asyncio.run(_aiokafka_session(bootstrap))
    frames = target.proxy.frames()
    assert len({frame[:2] for frame in frames}) >= 20, "too few APIs were seen"
    return frames


def _confluent_session(bootstrap: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic("stock", 3, 1)], operation_timeout=20)["stock"].result(120)
    client = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True, "compression.type": "lz4"})
    produce_all(
        client, [{"topic": "stock", "key": f"k{n}", "value": "v" * n, "headers": {"h": "1"}} for n in range(50)]
    )
    read_to_end(bootstrap, "stock", range(3))
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "stock"})
    consumer.commit(offsets=[TopicPartition("stock", 0, 3)], asynchronous=False)
    consumer.committed([TopicPartition("stock", 0)], timeout=20)
    consumer.offsets_for_times([TopicPartition("stock", 0, 1)], timeout=20)
    consumer.close()
    resource = ConfigResource(ConfigResource.Type.TOPIC, "stock")
    admin.describe_configs([resource])[resource].result(120)
    partition = TopicPartition("stock", 0)
    admin.list_offsets({partition: OffsetSpec.max_timestamp()})[partition].result(120)
    admin.delete_records([TopicPartition("stock", 0, 1)])


def _group_session(bootstrap: str, protocol: str) -> None:
    """A member's life, and an administrator's look at it."""
    group = f"stock-{protocol}"
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "group.protocol": protocol,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    consumer.subscribe(["stock"])
    eventually(lambda: consumer.poll(0.1), what="a record")
    consumer.commit(asynchronous=False)
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.describe_consumer_groups([group])[group].result(120)
    admin.list_consumer_groups().result(120)
    consumer.close()
    admin.delete_consumer_groups([group])[group].result(120)


def _kafka_python_session(bootstrap: str) -> None:
    administrator = KafkaAdminClient(bootstrap_servers=bootstrap)
    administrator.describe_topics(["stock"])
    administrator.describe_topic_partitions(["stock"])
    administrator.describe_cluster()
    administrator.describe_log_dirs()
    administrator.list_config_resources()
    administrator.close()
    producer = KafkaProducer(bootstrap_servers=bootstrap, compression_type="gzip")
    producer.send("stock", value=b"v").get(timeout=30)
    producer.close()
    consumer = KafkaConsumer(bootstrap_servers=bootstrap, group_id="stock-2", enable_auto_commit=False)
    consumer.assign([KafkaTopicPartition("stock", 0)])
    consumer.seek_to_beginning()
    consumer.poll(timeout_ms=1000)
    consumer.commit()
    consumer.close(autocommit=False)


async def _aiokafka_session(bootstrap: str) -> None:
    producer = AIOKafkaProducer(bootstrap_servers=bootstrap, enable_idempotence=True)
    await producer.start()
    await producer.send_and_wait("stock", b"v")
    await producer.stop()
    consumer = AIOKafkaConsumer(bootstrap_servers=bootstrap, group_id="stock-3", auto_offset_reset="earliest")
    await consumer.start()
    consumer.assign([AIOTopicPartition("stock", 0)])
    await consumer.getone()
    await consumer.commit()
    await consumer.stop()
    admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
    await admin.start()
    await admin.list_topics()
    await admin.close()
