"""A broker with TLS as a process of its own, and real clients."""

import contextlib
import json
import os
import socket
import ssl
import subprocess
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource
from tests.broker_process import EXECUTABLE, BrokerProcess
from tests.certificates import TlsFiles, name, tls_files
from tests.deadline import eventually

from cordwood.broker.metrics.endpoint import MAX_CONNECTIONS

SECRET = "timber-and-oak"


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> TlsFiles:
    return tls_files(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="module")
def broker(files: TlsFiles, tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """A broker with an encrypted key, that asks clients for certificates, with metrics over HTTPS."""
    directory = tmp_path_factory.mktemp("broker")
    own = directory / "broker.pem"
    own.write_bytes(files.authority.issue().keystore(SECRET))
    configuration = directory / "cordwood.toml"
    configuration.write_text(
        f"""listeners = "SSL://127.0.0.1:0"
        metrics.listener = "https://127.0.0.1:0"
        ssl.keystore.location = "{own}"
        ssl.key.password = "{SECRET}"
        ssl.client.auth = "requested"
        ssl.truststore.location = "{files.truststore}"
        listener.name.https.ssl.client.auth = "none"
        """
    )
    process = WithFile(directory / "data", options=("--config", str(configuration)))
    with process:
        yield process


class WithFile(BrokerProcess):
    """A broker whose listeners stand in its file: flags override the file."""

    def _listen(self) -> list[str]:
        return []


def settings_of(broker: BrokerProcess, files: TlsFiles, **more: Any) -> dict[str, Any]:
    own = {"bootstrap.servers": broker.bootstrap, "security.protocol": "SSL", "ssl.ca.location": str(files.truststore)}
    return {**own, **more}


def consumed(settings: dict[str, Any], group: str, topic: str, count: int) -> list[bytes]:
    consumer = Consumer({**settings, "group.id": group, "auto.offset.reset": "earliest"})
    try:
        consumer.subscribe([topic])
        values: list[bytes] = []

        def enough() -> bool:
            for message in consumer.consume(count, timeout=0.5):
                assert message.error() is None, message.error()
                values.append(message.value() or b"")
            return len(values) >= count

        eventually(enough, what=f"{count} records")
        consumer.commit(asynchronous=False)
        return values
    finally:
        consumer.close()


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_group_reads_what_producers_wrote(broker: BrokerProcess, files: TlsFiles, protocol: str) -> None:
    settings = settings_of(broker, files)
    producer = Producer({**settings, "compression.type": "lz4"})
    topic, values = f"orders-{protocol}", [b"%d" % number * 100 for number in range(2000)]
    for value in values:
        producer.produce(topic, value)
    assert producer.flush(60) == 0
    assert consumed({**settings, "group.protocol": protocol}, f"readers-{protocol}", topic, len(values)) == values


def test_transactions_with_a_client_certificate(broker: BrokerProcess, files: TlsFiles) -> None:
    own = files.client(name(CN="alice", O="Woods"))
    with_key = {"ssl.certificate.location": str(own), "ssl.key.location": str(own)}
    settings = settings_of(broker, files, **with_key)
    producer = Producer({**settings, "transactional.id": "till"})
    producer.init_transactions(60)
    producer.begin_transaction()
    producer.produce("till", b"aborted")
    producer.abort_transaction(60)
    producer.begin_transaction()
    producer.produce("till", b"committed")
    source = TopicPartition("till", 0, 7)
    reader = Consumer({**settings, "group.id": "till"})
    producer.send_offsets_to_transaction([source], reader.consumer_group_metadata(), 60)
    producer.commit_transaction(60)
    (position,) = reader.committed([source], timeout=60)
    assert position.offset == 7
    reader.close()
    assert consumed(settings, "till-readers", "till", 1) == [b"committed"]


def test_a_client_without_the_authority_is_refused_and_counted(broker: BrokerProcess, files: TlsFiles) -> None:
    before = metric(broker, files, "cordwood_tls_failures_total")
    strangers = {"bootstrap.servers": broker.bootstrap, "security.protocol": "SSL"}
    errors: list[KafkaError] = []
    producer = Producer({**strangers, "error_cb": errors.append})
    eventually(lambda: producer.poll(0.1) or errors, what="an error of the client")
    broker.says("the peer does not trust the broker's certificate")
    assert metric(broker, files, "cordwood_tls_failures_total") > before


def test_plain_text_at_a_tls_listener_is_named(broker: BrokerProcess) -> None:
    client = AdminClient({"bootstrap.servers": broker.bootstrap})
    broker.says("the listener SSL takes TLS only, and the peer speaks the Kafka protocol in plain text")
    del client


def test_half_handshakes_at_the_metrics_are_bounded_and_probes_are_answered(
    broker: BrokerProcess, files: TlsFiles
) -> None:
    before = descriptors(broker)
    address = address_of(endpoint_of(broker).removeprefix("https://"))
    hello = b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"
    with contextlib.ExitStack() as strangers:
        for _ in range(5 * MAX_CONNECTIONS):
            stranger = strangers.enter_context(socket.create_connection(address, timeout=60))
            # The broker may have made room already: it closes the oldest.
            with contextlib.suppress(ConnectionError):
                stranger.sendall(hello)
        assert b"takes clients" in got(broker, files, "/ready")
        assert descriptors(broker) <= before + MAX_CONNECTIONS + 10
    eventually(lambda: descriptors(broker) <= before + 5, what="no connection of a stranger")


def descriptors(broker: BrokerProcess) -> int:
    return len(os.listdir(f"/proc/{broker.pid}/fd"))


def endpoint_of(broker: BrokerProcess) -> str:
    said = broker.output()
    start = said.index("https://")
    return said[start : said.index("/metrics", start)]


def test_metrics_and_health_are_served_over_https(broker: BrokerProcess, files: TlsFiles) -> None:
    assert b"takes clients" in got(broker, files, "/ready")
    expires_s = metric(broker, files, 'cordwood_certificate_expires_timestamp_seconds{listener="SSL"}')
    own = ssl.create_default_context(cafile=str(files.truststore))
    with (
        socket.create_connection(address_of(broker.bootstrap)) as plain,
        own.wrap_socket(plain, server_hostname="127.0.0.1") as connection,
    ):
        found = connection.getpeercert()
    assert found is not None
    assert expires_s == ssl.cert_time_to_seconds(str(found["notAfter"]))


def address_of(text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    return host, int(port)


def got(broker: BrokerProcess, files: TlsFiles, path: str) -> bytes:
    context = ssl.create_default_context(cafile=str(files.truststore))
    with urllib.request.urlopen(endpoint_of(broker) + path, context=context, timeout=30) as answer:
        return bytes(answer.read())


def metric(broker: BrokerProcess, files: TlsFiles, name: str) -> float:
    lines = got(broker, files, "/metrics").decode().splitlines()
    (line,) = [line for line in lines if line.startswith(f"{name} ")]
    return float(line.rpartition(" ")[2])


def test_clients_are_not_told_secrets(broker: BrokerProcess, files: TlsFiles) -> None:
    admin = AdminClient(settings_of(broker, files))
    resource = ConfigResource(ConfigResource.Type.BROKER, "1")
    entries = admin.describe_configs([resource])[resource].result(60)
    secret = entries["ssl.key.password"]
    assert (secret.value, secret.is_sensitive, secret.is_read_only) == (None, True, True)
    assert all(each.value is None for each in secret.synonyms.values())
    assert entries["listener.name.https.ssl.client.auth"].value == "none"
    assert SECRET not in broker.output()


def test_a_configuration_with_a_secret_is_checked_without_telling_it(tmp_path: Path, files: TlsFiles) -> None:
    file = tmp_path / "cordwood.toml"
    file.write_text(f'ssl.key.password = "{SECRET}"\nlistener.name.ssl.ssl.key.password = "{SECRET}"\n')
    file.write_text(file.read_text() + f'listeners = "SSL://:1"\nssl.keystore.location = "{files.keystore}"\n')
    for options in ([], ["--json"]):
        ended = subprocess.run(
            [str(EXECUTABLE), "config", "check", str(file), *options], capture_output=True, text=True, check=True
        )
        assert "(hidden)" in ended.stdout
        assert SECRET not in ended.stdout + ended.stderr


def test_a_start_with_a_bad_certificate_is_refused_before_anything_is_opened(tmp_path: Path, files: TlsFiles) -> None:
    directory = tmp_path / "data"
    missing = tmp_path / "missing.pem"
    command = [str(EXECUTABLE), "serve", "--json", "--data-dir", str(directory), "--listen", "SSL://127.0.0.1:0"]
    ended = subprocess.run(
        [*command, "--set", f"ssl.keystore.location={missing}"], capture_output=True, text=True, check=False, timeout=60
    )
    assert ended.returncode == 1
    failure = json.loads(ended.stderr.splitlines()[-1])["error"]
    assert failure["code"] == "CERTIFICATES"
    assert f"{missing} (ssl.keystore.location of SSL) cannot be read" in failure["message"]
    assert not directory.exists()
