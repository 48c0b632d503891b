"""Idle consumers wait: no client polls in a circle because other requests of its connection have its fetch answered."""

import asyncio
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from aiokafka import AIOKafkaConsumer
from confluent_kafka import Consumer
from confluent_kafka.admin import AdminClient, NewTopic
from kafka import KafkaConsumer
from tests.broker_process import BrokerProcess, free_port

IDLE_S = 4.0
WAIT_S = 0.5
"""fetch.max.wait.ms of all three, and their default."""
EARLY_PER_S = 100
FIRST_FETCHES = 5
"""Until a client has its metadata and positions, and knows the end."""


class Observed:
    """A broker, and how often it was asked for what."""

    def __init__(self, directory: Path) -> None:
        self._port = free_port()
        self.broker = BrokerProcess(directory / "data", settings={"metrics.listener": f"127.0.0.1:{self._port}"})

    def requests(self, api: str) -> int:
        with urllib.request.urlopen(f"http://127.0.0.1:{self._port}/metrics", timeout=20) as answer:
            lines = answer.read().decode().splitlines()
        return sum(
            int(float(line.rpartition(" ")[2]))
            for line in lines
            if line.startswith("cordwood_requests_total") and f'"{api}"' in line
        )


@pytest.fixture(scope="module")
def observed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Observed]:
    observed = Observed(tmp_path_factory.mktemp("idle"))
    with observed.broker:
        admin = AdminClient({"bootstrap.servers": observed.broker.bootstrap})
        admin.create_topics([NewTopic("idle", 1, 1)])["idle"].result(60)
        yield observed


def confluent(bootstrap: str) -> None:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "idle-confluent", "fetch.wait.max.ms": 500})
    consumer.subscribe(["idle"])
    ends_s = time.monotonic() + IDLE_S
    while time.monotonic() < ends_s:
        consumer.poll(0.1)
    consumer.close()


def kafka_python(bootstrap: str) -> None:
    consumer = KafkaConsumer("idle", bootstrap_servers=bootstrap, group_id="idle-kafka-python", fetch_max_wait_ms=500)
    ends_s = time.monotonic() + IDLE_S
    while time.monotonic() < ends_s:
        consumer.poll(timeout_ms=100)
    consumer.close()


def aiokafka(bootstrap: str) -> None:
    async def idle() -> None:
        consumer = AIOKafkaConsumer(
            "idle", bootstrap_servers=bootstrap, group_id="idle-aiokafka", fetch_max_wait_ms=500
        )
        await consumer.start()
        ends_s = time.monotonic() + IDLE_S
        while time.monotonic() < ends_s:
            await consumer.getmany(timeout_ms=100)
        await consumer.stop()

    asyncio.run(idle())


@pytest.mark.parametrize("client", [confluent, kafka_python, aiokafka], ids=lambda client: client.__name__)
def test_an_idle_consumer_fetches_about_twice_a_second(observed: Observed, client: object) -> None:
    before, started_s = observed.requests("Fetch"), time.monotonic()
    assert callable(client)
    client(observed.broker.bootstrap)
    fetches, elapsed_s = observed.requests("Fetch") - before, time.monotonic() - started_s
    print(f"{fetches / elapsed_s:.1f} fetches a second")
    assert fetches <= elapsed_s / WAIT_S * 2 + FIRST_FETCHES


def test_a_consumer_that_asks_for_its_watermarks_all_the_time_is_bounded(observed: Observed) -> None:
    consumer = Consumer(
        {"bootstrap.servers": observed.broker.bootstrap, "group.id": "asking", "fetch.wait.max.ms": 500}
    )
    consumer.subscribe(["idle"])
    while not consumer.assignment():
        consumer.poll(0.1)
    (partition,) = consumer.assignment()
    before, started_s = observed.requests("Fetch"), time.monotonic()
    asked = 0
    while time.monotonic() < started_s + 3:
        consumer.get_watermark_offsets(partition, timeout=60)
        asked += 1
    fetches, elapsed_s = observed.requests("Fetch") - before, time.monotonic() - started_s
    consumer.close()
    print(f"{asked / elapsed_s:.0f} questions and {fetches / elapsed_s:.1f} fetches a second")
    assert fetches <= (elapsed_s + 1) * (EARLY_PER_S + 1 / WAIT_S) + FIRST_FETCHES
