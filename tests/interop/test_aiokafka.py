"""aiokafka, unmodified: it speaks the oldest versions of the protocol that a client still uses."""

import asyncio
import time
import uuid
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, ConsumerRecord, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewPartitions, NewTopic, RecordsToDelete
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.errors import MessageSizeTooLargeError
from tests.conftest import MakeTopic, RunningBroker

pytestmark = pytest.mark.landing

STAMP_MS = int(time.time() * 1000) - 3_600_000
"""An hour ago: retention must not find it old."""
TIMEOUT_S = 60


def run(story: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(story, TIMEOUT_S))


@asynccontextmanager
async def producing(broker: RunningBroker, **config: Any) -> AsyncIterator[AIOKafkaProducer]:
    producer = AIOKafkaProducer(bootstrap_servers=broker.bootstrap, **config)
    await producer.start()
    try:
        yield producer
    finally:
        await producer.stop()


@asynccontextmanager
async def reading(
    broker: RunningBroker, topic: str, *, group: str = "", **config: Any
) -> AsyncIterator[AIOKafkaConsumer]:
    consumer = AIOKafkaConsumer(
        bootstrap_servers=broker.bootstrap,
        group_id=group or f"group-{uuid.uuid4().hex[:8]}",
        enable_auto_commit=False,
        auto_offset_reset="earliest",
        **config,
    )
    await consumer.start()
    consumer.assign([TopicPartition(topic, 0)])
    try:
        yield consumer
    finally:
        await consumer.stop()


async def read_some(consumer: AIOKafkaConsumer, count: int) -> list[ConsumerRecord[Any, Any]]:
    return [await consumer.getone() for _ in range(count)]


@pytest.mark.parametrize("idempotent", [False, True], ids=["plain", "idempotent"])
@pytest.mark.parametrize("codec", [None, "gzip", "snappy", "lz4", "zstd"])
def test_every_codec(broker: RunningBroker, topic: str, codec: str | None, idempotent: bool) -> None:
    async def story() -> None:
        async with producing(broker, compression_type=codec, enable_idempotence=idempotent, linger_ms=20) as producer:
            pending = [
                await producer.send(topic, key=b"k%d" % n, value=b"value-%d-" % n * 20, headers=[("n", b"%d" % n)])
                for n in range(200)
            ]
            acked = [await future for future in pending]
        assert [record.offset for record in acked] == list(range(200))
        async with reading(broker, topic) as consumer:
            read = await read_some(consumer, 200)
        assert [(r.offset, r.key, r.value, list(r.headers)) for r in read] == [
            (n, b"k%d" % n, b"value-%d-" % n * 20, [("n", b"%d" % n)]) for n in range(200)
        ]

    run(story())


@pytest.mark.parametrize("acks", [0, 1, "all"])
def test_every_acks(broker: RunningBroker, topic: str, acks: int | str) -> None:
    async def story() -> None:
        async with producing(broker, acks=acks) as producer:
            for n in range(20):
                await producer.send(topic, value=b"v%d" % n)
            await producer.flush()
        async with reading(broker, topic) as consumer:
            assert [record.value for record in await read_some(consumer, 20)] == [b"v%d" % n for n in range(20)]

    run(story())


def test_nulls_and_timestamps(broker: RunningBroker, topic: str) -> None:
    async def story() -> None:
        async with producing(broker) as producer:
            await producer.send_and_wait(topic, key=None, value=b"", timestamp_ms=STAMP_MS)
            await producer.send_and_wait(topic, key=b"k", value=None, timestamp_ms=STAMP_MS + 5)
        async with reading(broker, topic) as consumer:
            first, second = await read_some(consumer, 2)
        assert (first.key, first.value, first.timestamp) == (None, b"", STAMP_MS)
        assert (second.key, second.value, second.timestamp) == (b"k", None, STAMP_MS + 5)

    run(story())


def test_a_message_beyond_the_topics_limit(broker: RunningBroker, make_topic: MakeTopic) -> None:
    topic = make_topic(**{"max.message.bytes": "20000"})

    async def story() -> None:
        async with producing(broker) as producer:
            with pytest.raises(MessageSizeTooLargeError):
                await producer.send_and_wait(topic, value=b"x" * 50_000)
            await producer.send_and_wait(topic, value=b"small")

    run(story())


def test_reading_from_anywhere(broker: RunningBroker, topic: str) -> None:
    async def story() -> None:
        async with producing(broker) as producer:
            for n in range(50):
                await producer.send(topic, value=b"v%d" % n, timestamp_ms=STAMP_MS + 1000 * n)
            await producer.flush()
        partition = TopicPartition(topic, 0)
        async with reading(broker, topic) as consumer:
            assert await consumer.beginning_offsets([partition]) == {partition: 0}
            assert await consumer.end_offsets([partition]) == {partition: 50}
            found = (await consumer.offsets_for_times({partition: STAMP_MS + 17_500}))[partition]
            assert found is not None
            assert (found.offset, found.timestamp) == (18, STAMP_MS + 18_000)
            consumer.seek(partition, found.offset)
            assert (await consumer.getone()).value == b"v18"
            await consumer.seek_to_end(partition)
            assert await consumer.position(partition) == 50

    run(story())


def test_positions_without_members(broker: RunningBroker, topic: str) -> None:
    async def story() -> None:
        partition = TopicPartition(topic, 0)
        async with reading(broker, topic) as consumer:
            assert await consumer.committed(partition) is None
            await consumer.commit({partition: 7})
            assert await consumer.committed(partition) == 7

    run(story())


def test_administration(broker: RunningBroker) -> None:
    async def story() -> None:
        name = f"admin-{uuid.uuid4().hex[:12]}"
        admin = AIOKafkaAdminClient(bootstrap_servers=broker.bootstrap)
        await admin.start()
        try:
            await admin.create_topics([NewTopic(name, num_partitions=2, replication_factor=1)], timeout_ms=20_000)
            while name not in await admin.list_topics():  # noqa: ASYNC110 (nobody announces new metadata)
                await asyncio.sleep(0.02)
            (described,) = await admin.describe_topics([name])
            assert len(described["partitions"]) == 2
            await admin.create_partitions({name: NewPartitions(3)}, timeout_ms=20_000)
            resource = ConfigResource(ConfigResourceType.TOPIC, name)
            (answer,) = await admin.describe_configs([resource])
            configs = {entry[0]: entry[1] for entry in answer.resources[0][4]}
            assert configs["retention.ms"] == "604800000"
            await admin.alter_configs([ConfigResource(ConfigResourceType.TOPIC, name, {"retention.ms": "86400000"})])
            async with producing(broker) as producer:
                for n in range(5):
                    await producer.send_and_wait(name, value=b"v%d" % n, partition=0)
            partition = TopicPartition(name, 0)
            assert await admin.delete_records({partition: RecordsToDelete(before_offset=3)}) == {partition: 3}
            cluster = await admin.describe_cluster()
            assert [(node["host"], node["port"]) for node in cluster["brokers"]] == [(broker.host, broker.port)]
            await admin.delete_topics([name], timeout_ms=20_000)
        finally:
            await admin.close()

    run(story())


def test_transactions_are_committed_or_aborted_whole(broker: RunningBroker, topic: str) -> None:
    async def story() -> None:
        async with producing(broker, transactional_id=f"writer-{uuid.uuid4().hex[:8]}") as producer:
            for number in range(6):
                await producer.begin_transaction()
                await producer.send_and_wait(topic, f"{number}.1".encode())
                await producer.send(topic, f"{number}.2".encode())
                if number % 2:
                    await producer.abort_transaction()
                else:
                    await producer.commit_transaction()
            await producer.begin_transaction()
            await producer.send_and_wait(topic, b"open")
            async with reading(broker, topic, isolation_level="read_committed") as consumer:
                found = [record.value for record in await read_some(consumer, 6)]
                assert found == [f"{number}.{part}".encode() for number in (0, 2, 4) for part in (1, 2)]
                await producer.commit_transaction()
                assert (await consumer.getone()).value == b"open"

    run(story())


def test_a_transaction_moves_positions(broker: RunningBroker, topic: str) -> None:
    async def story() -> None:
        partition = TopicPartition(topic, 0)
        group = f"group-{uuid.uuid4().hex[:8]}"
        async with (
            producing(broker, transactional_id=f"writer-{uuid.uuid4().hex[:8]}") as producer,
            reading(broker, topic, group=group) as consumer,
        ):
            await producer.begin_transaction()
            await producer.send_offsets_to_transaction({partition: 4}, group)
            await producer.abort_transaction()
            assert await consumer.committed(partition) is None
            await producer.begin_transaction()
            await producer.send_offsets_to_transaction({partition: 3}, group)
            await producer.commit_transaction()
            # A commit is answered when it is decided; aiokafka does not ask for what is decided alone.
            while await consumer.committed(partition) != 3:  # noqa: ASYNC110
                await asyncio.sleep(0.02)

    run(story())
