"""Clients with TLS that are not on librdkafka: Java, kafka-python, aiokafka, each with a certificate of its own."""

import asyncio
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from benchmarks.kafka_peer import KafkaJars
from kafka import KafkaConsumer, KafkaProducer
from tests.broker.conftest import client_context
from tests.broker_process import BrokerProcess
from tests.certificates import TlsFiles, name, tls_files
from tests.interop.conftest import JVM_FLAGS

VALUES = [b"%d" % number * 50 for number in range(300)]


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> TlsFiles:
    return tls_files(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="module")
def broker(files: TlsFiles, tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    settings = {
        "listeners": "SSL://127.0.0.1:0",
        "ssl.keystore.location": str(files.keystore),
        "ssl.truststore.location": str(files.truststore),
        "ssl.client.auth": "required",
    }
    with BrokerProcess(tmp_path_factory.mktemp("broker") / "data", settings=settings) as process:
        yield process


def test_kafka_python(broker: BrokerProcess, files: TlsFiles) -> None:
    settings = {
        "bootstrap_servers": broker.bootstrap,
        "security_protocol": "SSL",
        "ssl_context": client_context(files, files.client(name(CN="kafka-python"))),
    }
    producer = KafkaProducer(**settings)
    for value in VALUES:
        producer.send("kafka-python", value)
    producer.flush(60)
    producer.close()
    consumer = KafkaConsumer(
        "kafka-python", group_id="kafka-python", auto_offset_reset="earliest", consumer_timeout_ms=60_000, **settings
    )
    assert [message.value for message, _ in zip(consumer, VALUES, strict=False)] == VALUES
    consumer.close()


def test_aiokafka(broker: BrokerProcess, files: TlsFiles) -> None:
    settings = {
        "bootstrap_servers": broker.bootstrap,
        "security_protocol": "SSL",
        "ssl_context": client_context(files, files.client(name(CN="aiokafka"))),
    }

    async def story() -> list[bytes | None]:
        async with AIOKafkaProducer(**settings) as producer:
            for value in VALUES:
                await producer.send("aiokafka", value)
            await producer.flush()
        async with AIOKafkaConsumer(
            "aiokafka", group_id="aiokafka", auto_offset_reset="earliest", **settings
        ) as consumer:
            return [(await consumer.getone()).value for _ in VALUES]

    assert asyncio.run(asyncio.wait_for(story(), 90)) == VALUES


@pytest.mark.parametrize("version", ["TLSv1.2", "TLSv1.3"])
def test_the_java_client(
    broker: BrokerProcess, files: TlsFiles, kafka_jars: KafkaJars, tmp_path: Path, version: str
) -> None:
    properties = tmp_path / "client.properties"
    properties.write_text(
        f"""security.protocol=SSL
        ssl.enabled.protocols={version}
        ssl.truststore.type=PEM
        ssl.truststore.location={files.truststore}
        ssl.keystore.type=PEM
        ssl.keystore.location={files.client(name(CN="java"))}
        """
    )
    topic = f"java-{version}"
    lines = "".join(f"value {number}\n" for number in range(20))

    def run(tool: str, *arguments: str, given: str = "") -> str:
        command = kafka_jars.command(
            f"org.apache.kafka.tools.{tool}",
            *("--bootstrap-server", broker.bootstrap, "--command-config", str(properties), "--topic", topic),
            *arguments,
            jvm_flags=JVM_FLAGS,
        )
        done = subprocess.run(command, input=given, capture_output=True, text=True, timeout=100, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    run("ConsoleProducer", given=lines)
    told = run("consumer.ConsoleConsumer", "--from-beginning", "--max-messages", "20", "--timeout-ms", "60000")
    assert told == lines
