"""Real clients log in: confluent-kafka, kafka-python, aiokafka and Kafka's own tools, by each mechanism."""

import asyncio
import shutil
import subprocess
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.errors import KafkaError as AioKafkaError
from benchmarks.kafka_peer import KafkaJars
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, ScramCredentialInfo, ScramMechanism, UserScramCredentialUpsertion
from kafka import KafkaConsumer, KafkaProducer
from kafka.errors import KafkaError as PythonKafkaError
from tests.broker.conftest import client_context
from tests.certificates import TlsFiles, tls_files
from tests.deadline import eventually
from tests.interop.conftest import JVM_FLAGS

from cordwood.embedded import Broker

MECHANISMS = ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"]
SETTINGS = {
    "listeners": "PLAINTEXT://127.0.0.1:0,USERS://127.0.0.1:0",
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,USERS:SASL_PLAINTEXT",
    "sasl.enabled.mechanisms": ",".join(MECHANISMS),
}
USER, PASSWORD = "alice", "sécret"
ODD_NAME = "alice, of =2C"
"""A name that SCRAM escapes. kafka-python sends it as it is."""
TIMEOUT_S = 60

each_mechanism = pytest.mark.parametrize("mechanism", MECHANISMS)


def add_user(broker: Broker, name: str = USER, password: str = PASSWORD) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    for mechanism in (ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512):
        keys = UserScramCredentialUpsertion(name, ScramCredentialInfo(mechanism, 4096), password.encode(), b"salt")
        admin.alter_user_scram_credentials([keys])[name].result(TIMEOUT_S)


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker(settings=SETTINGS) as broker:
        add_user(broker)
        add_user(broker, ODD_NAME)
        yield broker


@pytest.fixture
def topic(broker: Broker) -> str:
    return f"topic-{uuid.uuid4().hex[:8]}"


def of_librdkafka(broker: Broker, mechanism: str, password: str = PASSWORD, **more: Any) -> dict[str, Any]:
    return {
        "bootstrap.servers": broker.listeners["USERS"],
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": mechanism,
        "sasl.username": USER,
        "sasl.password": password,
        **more,
    }


def of_python(broker: Broker, mechanism: str, password: str = PASSWORD) -> dict[str, Any]:
    return {
        "bootstrap_servers": broker.listeners["USERS"],
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": mechanism,
        "sasl_plain_username": USER,
        "sasl_plain_password": password,
    }


@pytest.mark.landing
@each_mechanism
def test_confluent_kafka(broker: Broker, topic: str, mechanism: str) -> None:
    errors: list[KafkaError | None] = []
    producer = Producer({**of_librdkafka(broker, mechanism), "sasl.username": ODD_NAME})
    producer.produce(topic, b"x", on_delivery=lambda error, _: errors.append(error))
    assert producer.flush(TIMEOUT_S) == 0
    assert errors == [None]
    settings = {"group.id": topic, "auto.offset.reset": "earliest"}
    consumer = Consumer(of_librdkafka(broker, mechanism, **settings))
    consumer.subscribe([topic])
    message = consumer.poll(TIMEOUT_S)
    assert message is not None
    assert message.value() == b"x"
    consumer.close()


@pytest.mark.landing
@pytest.mark.skipif(shutil.which("kcat") is None, reason="kcat is not installed (Debian: kcat)")
@each_mechanism
def test_kcat_of_debian(broker: Broker, topic: str, mechanism: str) -> None:
    """Its librdkafka, before 2.6.1, repeats its part of a SCRAM nonce. Apache Kafka 4 refuses that."""
    settings = of_librdkafka(broker, mechanism)
    server = settings.pop("bootstrap.servers")
    given = [word for name, value in settings.items() for word in ("-X", f"{name}={value}")]
    command = ["kcat", "-b", server, "-t", topic, "-P", *given]
    done = subprocess.run(command, input=b"x", capture_output=True, timeout=TIMEOUT_S, check=False)
    assert done.returncode == 0, done.stderr.decode()


@pytest.mark.landing
@each_mechanism
def test_confluent_kafka_with_a_wrong_password(broker: Broker, mechanism: str) -> None:
    errors: list[KafkaError] = []
    producer = Producer(of_librdkafka(broker, mechanism, "wrong", error_cb=errors.append))

    def is_refused() -> bool:
        producer.poll(0.1)
        return any(error.code() == KafkaError._AUTHENTICATION for error in errors)

    eventually(is_refused, what="an authentication error")


@pytest.mark.landing
@each_mechanism
def test_kafka_python(broker: Broker, topic: str, mechanism: str) -> None:
    producer = KafkaProducer(**of_python(broker, mechanism))
    producer.send(topic, b"x").get(TIMEOUT_S)
    producer.close()
    consumer = KafkaConsumer(topic, auto_offset_reset="earliest", **of_python(broker, mechanism))
    assert next(consumer).value == b"x"
    consumer.close()
    with pytest.raises(PythonKafkaError):
        KafkaProducer(**of_python(broker, mechanism, "wrong"), bootstrap_timeout_ms=1000)


@pytest.mark.landing
@each_mechanism
def test_aiokafka(broker: Broker, topic: str, mechanism: str) -> None:
    async def story() -> None:
        async with AIOKafkaProducer(**of_python(broker, mechanism)) as producer:
            await producer.send_and_wait(topic, b"x")
        settings = of_python(broker, mechanism)
        async with AIOKafkaConsumer(topic, auto_offset_reset="earliest", **settings) as consumer:
            assert (await consumer.getone()).value == b"x"
        refused = AIOKafkaProducer(**of_python(broker, mechanism, "wrong"))
        with pytest.raises(AioKafkaError):
            await refused.start()

    asyncio.run(asyncio.wait_for(story(), TIMEOUT_S))


@pytest.mark.landing
def test_a_client_logs_in_again_when_its_session_ends() -> None:
    """librdkafka does so on the same connection, kafka-python on a new one: neither loses a record."""
    session_ms = 1000
    with Broker(settings={**SETTINGS, "connections.max.reauth.ms": session_ms}) as broker:
        add_user(broker)
        errors: list[object] = []
        producer = Producer(of_librdkafka(broker, "SCRAM-SHA-256"))
        other = KafkaProducer(**of_python(broker, "SCRAM-SHA-512"), retries=5)
        end_s = time.monotonic() + 4 * session_ms / 1000
        sent = 0
        while time.monotonic() < end_s:
            producer.produce("of-librdkafka", b"x", on_delivery=lambda error, _: errors.append(error))
            assert producer.flush(TIMEOUT_S) == 0
            other.send("of-python", b"x").get(TIMEOUT_S)
            sent += 1
        assert errors == [None] * sent
        other.close()


class Tools:
    """Kafka's tools with a file of client settings."""

    def __init__(self, jars: KafkaJars, broker: Broker, directory: Path) -> None:
        self._jars = jars
        self._broker = broker
        self._file = directory / "client.properties"

    def configure(self, mechanism: str, user: str, password: str) -> None:
        kind = "plain.Plain" if mechanism == "PLAIN" else "scram.Scram"
        login = f'org.apache.kafka.common.security.{kind}LoginModule required username="{user}" password="{password}";'
        lines = ["security.protocol=SASL_PLAINTEXT", f"sasl.mechanism={mechanism}", f"sasl.jaas.config={login}"]
        self._file.write_text("\n".join(lines))

    def run(self, main_class: str, *arguments: str, stdin: str = "", logged_in: bool = True) -> str:
        server = self._broker.listeners["USERS"] if logged_in else self._broker.bootstrap_servers
        command = self._jars.command(main_class, "--bootstrap-server", server, *arguments, jvm_flags=JVM_FLAGS)
        done = subprocess.run(command, input=stdin, capture_output=True, text=True, timeout=100, check=False)
        return done.stdout + done.stderr

    def configs(self, *arguments: str) -> str:
        return self.run("kafka.admin.ConfigCommand", *arguments, logged_in=False)

    def produce(self, topic: str) -> str:
        arguments = ("--topic", topic, "--command-config", str(self._file))
        return self.run("org.apache.kafka.tools.ConsoleProducer", *arguments, stdin="x\n")


def described(broker: Broker, name: str) -> dict[str, int]:
    """The iterations of a user's keys, by mechanism."""
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    found: Any = admin.describe_user_scram_credentials()
    user = found.result(TIMEOUT_S).get(name)
    return {} if user is None else {info.mechanism.name: info.iterations for info in user.scram_credential_infos}


@pytest.mark.timeout(540)
def test_kafka_configs_makes_users_that_log_in_by_each_mechanism(
    broker: Broker, topic: str, kafka_jars: KafkaJars, tmp_path: Path
) -> None:
    tools = Tools(kafka_jars, broker, tmp_path)
    keys = "SCRAM-SHA-256=[password=secret],SCRAM-SHA-512=[iterations=8192,password=secret]"
    user = ("--entity-type", "users", "--entity-name", "java")
    assert "Completed updating config for user java" in tools.configs("--alter", "--add-config", keys, *user)
    # `kafka-configs --describe` asks for quotas, too, which there are not yet.
    assert described(broker, "java") == {"SCRAM_SHA_256": 4096, "SCRAM_SHA_512": 8192}
    for number, mechanism in enumerate(MECHANISMS, 1):
        tools.configure(mechanism, "java", "secret")
        said = tools.produce(topic)
        assert "Exception" not in said, said
        consumer = Consumer(of_librdkafka(broker, mechanism, **{"group.id": topic}))
        assert consumer.get_watermark_offsets(TopicPartition(topic, 0)) == (0, number)
        consumer.close()
    tools.configure("SCRAM-SHA-256", "java", "wrong")
    assert "due to invalid credentials with SASL mechanism SCRAM-SHA-256" in tools.produce(topic)
    tools.configs("--alter", "--delete-config", "SCRAM-SHA-256,SCRAM-SHA-512", *user)
    assert described(broker, "java") == {}


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> TlsFiles:
    return tls_files(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="module")
def broker_with_tls(files: TlsFiles) -> Iterator[Broker]:
    protocols = "PLAINTEXT:PLAINTEXT,USERS:SASL_SSL"
    settings = {"listener.security.protocol.map": protocols, "ssl.keystore.location": str(files.keystore)}
    with Broker(settings={**SETTINGS, **settings}) as broker:
        add_user(broker)
        yield broker


@pytest.mark.landing
@each_mechanism
def test_clients_log_in_over_tls(broker_with_tls: Broker, files: TlsFiles, topic: str, mechanism: str) -> None:
    protocol = {"security.protocol": "SASL_SSL", "ssl.ca.location": str(files.truststore)}
    errors: list[KafkaError | None] = []
    producer = Producer({**of_librdkafka(broker_with_tls, mechanism), **protocol})
    producer.produce(topic, b"x", on_delivery=lambda error, _: errors.append(error))
    assert producer.flush(TIMEOUT_S) == 0
    assert errors == [None]

    async def story() -> None:
        settings = {**of_python(broker_with_tls, mechanism), "security_protocol": "SASL_SSL"}
        context = client_context(files)
        async with AIOKafkaConsumer(topic, auto_offset_reset="earliest", ssl_context=context, **settings) as consumer:
            assert (await consumer.getone()).value == b"x"

    asyncio.run(asyncio.wait_for(story(), TIMEOUT_S))
