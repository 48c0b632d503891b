"""Clients of other families on the files of `cordwood cluster up --secure`: each writes to the one topic that it may
write to, is refused another, and reads in a group of its own."""

import asyncio
import json
import shutil
import ssl
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.errors import TopicAuthorizationFailedError as AioTopicRefused
from benchmarks.kafka_peer import KafkaJars
from confluent_kafka.admin import AdminClient, NewTopic
from kafka import KafkaConsumer, KafkaProducer
from kafka.errors import TopicAuthorizationFailedError as PythonTopicRefused
from tests.broker.test_secure_start import client
from tests.cluster.local_cluster import LocalCluster
from tests.cluster.test_secure_local import admins_file, cordwood
from tests.interop.conftest import JVM_FLAGS

pytestmark = pytest.mark.timeout(300)
TIMEOUT_S = 60
TOPIC, HIDDEN = "orders", "payroll"


class Alice(NamedTuple):
    """A user who may write and read one topic of three partitions on three brokers, and her files."""

    librdkafka: Path
    java: Path

    @property
    def of_librdkafka(self) -> dict[str, Any]:
        return client(self.librdkafka)

    @property
    def of_python(self) -> dict[str, Any]:
        told = self.of_librdkafka
        return {
            "bootstrap_servers": told["bootstrap.servers"].split(","),
            "security_protocol": told["security.protocol"],
            "sasl_mechanism": told["sasl.mechanism"],
            "sasl_plain_username": told["sasl.username"],
            "sasl_plain_password": told["sasl.password"],
            "ssl_context": ssl.create_default_context(cafile=told["ssl.ca.location"]),
        }


@pytest.fixture(scope="module")
def alice(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Alice]:
    data = tmp_path_factory.mktemp("secure") / "data"
    with LocalCluster(data, "--secure", "--metadata", "supervisor"):
        admin = ("--client-config", str(admins_file(data)))
        creator = AdminClient(client(admins_file(data)))
        for made in creator.create_topics([NewTopic(name, 3, 3) for name in (TOPIC, HIDDEN)]).values():
            made.result(TIMEOUT_S)
        files = json.loads(cordwood("user", "add", "alice", "--json", *admin))["files"]
        cordwood("acl", "add", "alice", "--producer", "--topic", TOPIC, *admin)
        cordwood("acl", "add", "alice", "--consumer", "--topic", TOPIC, "--group", "*", *admin)
        yield Alice(Path(files["librdkafka"]), Path(files["java"]))


def words(of: str) -> list[str]:
    """More records than there are partitions."""
    return [f"{of}-{number}" for number in range(30)]


def test_kafka_python(alice: Alice) -> None:
    producer = KafkaProducer(acks="all", enable_idempotence=True, **alice.of_python)
    for word in words("python"):
        producer.send(TOPIC, key=word.encode(), value=word.encode()).get(TIMEOUT_S)
    with pytest.raises(PythonTopicRefused):
        producer.send(HIDDEN, b"x").get(TIMEOUT_S)
    producer.close()
    settings = {"group_id": "python", "auto_offset_reset": "earliest", **alice.of_python}
    consumer = KafkaConsumer(TOPIC, consumer_timeout_ms=TIMEOUT_S * 1000, **settings)
    left = set(words("python"))
    for record in consumer:
        left.discard(record.value.decode())
        if not left:
            break
    assert not left
    consumer.commit()
    consumer.close()


def test_aiokafka(alice: Alice) -> None:
    async def story() -> None:
        async with AIOKafkaProducer(enable_idempotence=True, **alice.of_python) as producer:
            for word in words("aio"):
                await producer.send_and_wait(TOPIC, key=word.encode(), value=word.encode())
        refused = AIOKafkaProducer(**alice.of_python)
        await refused.start()
        with pytest.raises(AioTopicRefused):
            await refused.send_and_wait(HIDDEN, b"x")
        await refused.stop()
        settings = {"group_id": "aio", "auto_offset_reset": "earliest", **alice.of_python}
        async with AIOKafkaConsumer(TOPIC, **settings) as consumer:
            left = set(words("aio"))
            while left:
                left.discard((await consumer.getone()).value.decode())
            await consumer.commit()

    asyncio.run(asyncio.wait_for(story(), TIMEOUT_S))


@pytest.mark.skipif(shutil.which("kcat") is None, reason="kcat is not installed (Debian: kcat)")
def test_kcat_takes_the_file_as_it_is(alice: Alice) -> None:
    def kcat(*arguments: str, lines: str = "") -> "subprocess.CompletedProcess[str]":
        command = ["kcat", "-F", str(alice.librdkafka), *arguments]
        return subprocess.run(command, input=lines, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)

    written = kcat("-P", "-t", TOPIC, "-X", "acks=all", lines="\n".join(words("kcat")))
    assert written.returncode == 0, written.stderr
    assert set(words("kcat")) <= set(kcat("-C", "-t", TOPIC, "-e", "-q").stdout.splitlines())
    assert "authorization failed" in kcat("-P", "-t", HIDDEN, lines="x").stderr


def test_the_tools_of_kafka_take_the_file_as_it_is(alice: Alice, kafka_jars: KafkaJars) -> None:
    def tool(main_class: str, *arguments: str, lines: str = "") -> "subprocess.CompletedProcess[str]":
        servers = alice.of_librdkafka["bootstrap.servers"]
        given = ("--bootstrap-server", servers, "--command-config", str(alice.java), *arguments)
        command = kafka_jars.command(main_class, *given, jvm_flags=JVM_FLAGS)
        return subprocess.run(command, input=lines, capture_output=True, text=True, timeout=100, check=False)

    written = tool("org.apache.kafka.tools.ConsoleProducer", "--topic", TOPIC, lines="\n".join(words("java")) + "\n")
    assert written.returncode == 0
    assert "Exception" not in written.stderr
    of_reader = ("--topic", TOPIC, "--group", "java", "--from-beginning", "--timeout-ms", "10000")
    read = tool("org.apache.kafka.tools.consumer.ConsoleConsumer", *of_reader)
    assert set(words("java")) <= set(read.stdout.splitlines()), read.stderr
    refused = tool("org.apache.kafka.tools.ConsoleProducer", "--topic", HIDDEN, lines="x\n")
    assert "TopicAuthorizationException" in refused.stderr + refused.stdout
