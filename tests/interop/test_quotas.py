"""Real clients and Kafka's own tool under quotas: they are held to their rates, lose no record and no membership."""

from __future__ import annotations

import json
import socket
import subprocess
import time
import uuid
from collections.abc import Iterator
from typing import Any

import pytest
from benchmarks.kafka_peer import KafkaJars
from confluent_kafka import Consumer, Producer, ThrottleEvent
from kafka import KafkaConsumer, KafkaProducer
from tests.broker.conftest import request as request_frame
from tests.cli.conftest import Cordwood
from tests.interop.conftest import JVM_FLAGS

from cordwood.embedded import Broker, Cluster

RATE = 2_000_000
RECORD = bytes(50_000)
RECORDS = 120
"""Three seconds' worth of the rate, of which one is free."""
BURST_S = 1
TIMEOUT_S = 90


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker(settings={"quota.window.num": BURST_S + 1}) as broker:
        yield broker


@pytest.fixture
def name() -> str:
    """A new topic, which is also the client id."""
    return f"quota-{uuid.uuid4().hex[:8]}"


def bound(broker: Broker | Cluster, client_id: str, option: str) -> None:
    Cordwood(broker.bootstrap_servers)("quota", "add", "--client-id", client_id, option, RATE)


def least_s(bytes_taken: int, largest: int) -> float:
    """The time that so many bytes take at least, of which the last request is paid for afterwards."""
    return (bytes_taken - largest) / RATE - BURST_S


def fill(broker: Broker, topic: str) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
    for _ in range(RECORDS):
        producer.produce(topic, RECORD)
    assert producer.flush(TIMEOUT_S) == 0


@pytest.mark.landing
def test_a_confluent_producer_is_held_to_its_rate_and_told_so(broker: Broker, name: str) -> None:
    bound(broker, name, "--producer-byte-rate")
    throttles: list[ThrottleEvent] = []
    settings = {"bootstrap.servers": broker.bootstrap_servers, "client.id": name, "batch.size": 200_000}
    producer = Producer({**settings, "throttle_cb": throttles.append, "linger.ms": 5})
    failures: list[object] = []
    began_s = time.monotonic()
    for _ in range(RECORDS):
        producer.produce(name, RECORD, on_delivery=lambda error, _: failures.append(error))
    assert producer.flush(TIMEOUT_S) == 0
    took_s = time.monotonic() - began_s
    assert failures == [None] * RECORDS
    taken = RECORDS * len(RECORD)
    assert took_s >= least_s(taken, 250_000)
    # The times that were told add up to what the rate takes, whatever else the machine does.
    told_s = sum(event.throttle_time for event in throttles)
    assert 0 < told_s <= taken / RATE


@pytest.mark.landing
def test_a_confluent_consumer_is_held_to_its_rate_and_stays_in_its_group(broker: Broker, name: str) -> None:
    fill(broker, name)
    bound(broker, name, "--consumer-byte-rate")
    settings = {"bootstrap.servers": broker.bootstrap_servers, "client.id": name, "group.id": name}
    consumer = Consumer({**settings, "auto.offset.reset": "earliest", "session.timeout.ms": 6000})
    assigned: list[Any] = []
    consumer.subscribe([name], on_assign=lambda _, partitions: assigned.append(partitions))
    began_s, read = time.monotonic(), 0
    while read < RECORDS:
        assert time.monotonic() - began_s < TIMEOUT_S
        message = consumer.poll(1)
        read += message is not None and message.error() is None
    assert time.monotonic() - began_s >= least_s(RECORDS * len(RECORD), RATE)
    assert len(assigned) == 1, "the member was never taken for dead"
    consumer.close()


@pytest.mark.landing
def test_kafka_pythons_producer_and_consumer_are_held_to_their_rates(broker: Broker, name: str) -> None:
    for option in ("--producer-byte-rate", "--consumer-byte-rate"):
        bound(broker, name, option)
    producer = KafkaProducer(bootstrap_servers=broker.bootstrap_servers, client_id=name, batch_size=200_000)
    began_s = time.monotonic()
    sent = [producer.send(name, RECORD) for _ in range(RECORDS)]
    for each in sent:
        each.get(TIMEOUT_S)
    assert time.monotonic() - began_s >= least_s(RECORDS * len(RECORD), 250_000)
    producer.close()
    consumer = KafkaConsumer(
        name, bootstrap_servers=broker.bootstrap_servers, client_id=name, group_id=name, auto_offset_reset="earliest"
    )
    began_s, read = time.monotonic(), 0
    while read < RECORDS:
        assert time.monotonic() - began_s < TIMEOUT_S
        read += sum(map(len, consumer.poll(1000).values()))
    assert time.monotonic() - began_s >= least_s(RECORDS * len(RECORD), RATE)
    consumer.close()


@pytest.mark.landing
def test_a_client_that_takes_much_of_the_loop_is_held_back(broker: Broker, name: str) -> None:
    Cordwood(broker.bootstrap_servers)("quota", "add", "--client-id", name, "--request-percentage", 0.5)
    throttles: list[ThrottleEvent] = []
    settings = {"bootstrap.servers": broker.bootstrap_servers, "client.id": name}
    producer = Producer({**settings, "throttle_cb": throttles.append})
    end_s = time.monotonic() + TIMEOUT_S
    while not throttles:
        assert time.monotonic() < end_s
        producer.produce(name, b"one record in each request")
        assert producer.flush(TIMEOUT_S) == 0
    assert 0 < throttles[0].throttle_time <= 1


@pytest.mark.landing
def test_connections_of_an_address_wait_for_their_turn(broker: Broker) -> None:
    cli, rate, count = Cordwood(broker.bootstrap_servers), 10, 30
    quota = ("--ip", "127.0.0.1", "--connection-creation-rate")
    cli("quota", "add", *quota, rate)
    host, port = broker.bootstrap_servers.split(":")
    question = request_frame(1, api_key=18)
    began_s = time.monotonic()
    connections = [socket.create_connection((host, int(port)), timeout=TIMEOUT_S) for _ in range(count)]
    for each in connections:
        each.sendall(question)
    for each in connections:
        assert each.recv(4)
        each.close()
    assert time.monotonic() - began_s >= (count - 1) / rate - BURST_S
    cli("quota", "remove", *quota[:2], "--yes")


def test_a_quota_that_is_set_at_one_broker_holds_at_all(name: str) -> None:
    with Cluster(2, settings={"quota.window.num": BURST_S + 1}) as cluster:
        Cordwood(cluster.bootstrap_servers)("topic", "create", name, "--partitions", "2")
        bound(cluster, name, "--producer-byte-rate")
        told: set[str] = set()
        settings = {"bootstrap.servers": cluster.bootstrap_servers, "client.id": name}
        producer = Producer({**settings, "throttle_cb": lambda event: told.add(event.broker_name)})
        end_s = time.monotonic() + TIMEOUT_S
        while len(told) < 2:
            assert time.monotonic() < end_s, told
            for partition in range(2):
                producer.produce(name, RECORD, partition=partition)
            producer.flush(TIMEOUT_S)


def test_quotas_outlive_a_restart(tmp_path_factory: pytest.TempPathFactory, name: str) -> None:
    directory = tmp_path_factory.mktemp("quotas")
    with Broker(data_dir=directory) as broker:
        bound(broker, name, "--producer-byte-rate")
    with Broker(data_dir=directory) as broker:
        assert Cordwood(broker.bootstrap_servers).json("quota", "list") == [
            {"entity": {"client-id": name}, "quotas": {"producer_byte_rate": RATE}}
        ]


@pytest.mark.timeout(540)
def test_kafka_configs_sets_shows_and_removes_quotas(broker: Broker, kafka_jars: KafkaJars) -> None:
    def configs(*arguments: str) -> str:
        command = kafka_jars.command(
            "kafka.admin.ConfigCommand",
            "--bootstrap-server",
            broker.bootstrap_servers,
            *arguments,
            jvm_flags=JVM_FLAGS,
        )
        done = subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)
        return done.stdout + done.stderr

    cli = Cordwood(broker.bootstrap_servers)
    alice = ("--entity-type", "users", "--entity-name", "alice")
    both = (*alice, "--entity-type", "clients", "--entity-default")
    address = ("--entity-type", "ips", "--entity-name", "10.0.0.1")
    rates = "producer_byte_rate=1024,consumer_byte_rate=2048,request_percentage=12.5"
    assert "Completed updating" in configs("--alter", "--add-config", rates, *both)
    assert "Completed updating" in configs("--alter", "--add-config", "connection_creation_rate=7", *address)
    (held,) = [each for each in cli.json("quota", "list") if "user" in each["entity"]]
    assert json.dumps(held["quotas"], sort_keys=True) == json.dumps(
        {"consumer_byte_rate": 2048.0, "producer_byte_rate": 1024.0, "request_percentage": 12.5}
    )
    said = configs("--describe", *both)
    assert "alice" in said
    assert "producer_byte_rate=1024" in said
    assert "connection_creation_rate=7" in configs("--describe", *address)
    refused = configs("--alter", "--add-config", "producer_byte_rate=-1", *alice)
    assert "must be greater than 0" in refused, refused
    configs("--alter", "--delete-config", "producer_byte_rate,consumer_byte_rate,request_percentage", *both)
    configs("--alter", "--delete-config", "connection_creation_rate", *address)
    assert [each for each in cli.json("quota", "list") if "client-id" not in each["entity"]] == []
