"""Groups with the clients written in Python: kafka-python and aiokafka subscribe, share, commit and resume."""

import asyncio
import uuid
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from confluent_kafka import Producer
from tests.conftest import MakeTopic, RunningBroker
from tests.deadline import eventually
from tests.interop.confluent_clients import produce_all
from tests.interop.python_members import aiokafka_member, kafka_python_member, poll

PARTITIONS = 4


@pytest.fixture
def group() -> str:
    return f"group-{uuid.uuid4().hex[:8]}"


@pytest.fixture
def filled(broker: RunningBroker, make_topic: MakeTopic) -> str:
    topic = make_topic(partitions=PARTITIONS)
    fill(broker, topic, 0, 20)
    return topic


def fill(broker: RunningBroker, topic: str, start: int, end: int) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap, "linger.ms": 0})
    produce_all(producer, [{"topic": topic, "value": f"v{n}", "partition": n % PARTITIONS} for n in range(start, end)])


def test_kafka_python_members_share_commit_and_resume(broker: RunningBroker, group: str, filled: str) -> None:
    first = kafka_python_member(broker.bootstrap, group, filled)
    values: list[bytes] = []
    eventually(lambda: poll(first, values), to_be=20, what="all is read")
    first.commit()
    second = kafka_python_member(broker.bootstrap, group, filled)

    def share() -> bool:
        # Both are polled at the same time, as two programs do: KafkaPythonWorker says why.
        list(at_once.map(lambda member: poll(member, values, 1000), (first, second)))
        return len(first.assignment()) == len(second.assignment()) == PARTITIONS // 2

    with ThreadPoolExecutor(2) as at_once:
        eventually(share, what="two members share")
    assert first.assignment().isdisjoint(second.assignment())
    first.close()
    # Records that are read before the round and not committed would be read again after it.
    eventually(lambda: poll(second, values) and len(second.assignment()) == PARTITIONS, what="it has all")
    fill(broker, filled, 20, 24)
    eventually(lambda: poll(second, values) >= 24, what="the rest is read")
    second.commit()
    second.close()
    assert len(values) == len(set(values)) == 24

    third = kafka_python_member(broker.bootstrap, group, filled)
    fill(broker, filled, 24, 25)
    later: list[bytes] = []
    eventually(lambda: poll(third, later), what="only what is new")
    third.close()
    assert later == [b"v24"]


def test_aiokafka_members_share_commit_and_resume(broker: RunningBroker, group: str, filled: str) -> None:
    def member() -> Any:
        return aiokafka_member(broker.bootstrap, group, filled)

    async def read(consumer: Any, count: int) -> list[bytes]:
        async with asyncio.timeout(120):
            return [(await consumer.getone()).value for _ in range(count)]

    async def until(settled: Callable[[], bool]) -> None:
        await asyncio.to_thread(eventually, settled)

    async def share() -> None:
        first, second = member(), member()
        await first.start()
        try:
            assert len(set(await read(first, 20))) == 20
            await first.commit()
            await second.start()
            try:
                await until(lambda: len(first.assignment()) == len(second.assignment()) == PARTITIONS // 2)
                assert first.assignment().isdisjoint(second.assignment())
            finally:
                await first.stop()
            # Records that are read before the round and not committed would be read again after it.
            await until(lambda: len(second.assignment()) == PARTITIONS)
            await asyncio.to_thread(fill, broker, filled, 20, 24)
            assert set(await read(second, 4)) == {b"v20", b"v21", b"v22", b"v23"}
            await second.commit()
        finally:
            await second.stop()
        third = member()
        await third.start()
        try:
            await asyncio.to_thread(fill, broker, filled, 24, 25)
            assert await read(third, 1) == [b"v24"]
        finally:
            await third.stop()

    asyncio.run(share())
