"""The raw client against a real broker whose listener wants TLS and a log-in, by each mechanism."""

import secrets
import uuid
from collections.abc import Iterator
from dataclasses import replace

import pytest
from tests.certificates import TlsFiles, tls_files
from tests.deadline import eventually
from tests.interop.raw_batches import batch_of
from tests.interop.test_sasl_clients import PASSWORD, USER, add_user

from cordwood.client.cluster import EARLIEST, LATEST, Cluster
from cordwood.client.connection import Connection
from cordwood.client.errors import BrokerUnreachable, SecurityFailure
from cordwood.client.settings import ClientSettings
from cordwood.embedded import Broker
from cordwood.model.identifiers import TopicPartition
from cordwood.security.connection_settings import PLAIN_TEXT, ClientLogIn, ClientTls, Security
from cordwood.wire.apis import ApiKey
from cordwood.wire.asking import encode_request

MECHANISMS = ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"]
SESSION_MS = 1_000
each_mechanism = pytest.mark.parametrize("mechanism", MECHANISMS)


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> TlsFiles:
    return tls_files(tmp_path_factory.mktemp("tls"))


@pytest.fixture(scope="module")
def broker(files: TlsFiles) -> Iterator[Broker]:
    settings = {
        "listeners": "PLAINTEXT://127.0.0.1:0,USERS://127.0.0.1:0",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,USERS:SASL_SSL",
        "sasl.enabled.mechanisms": ",".join(MECHANISMS),
        "ssl.keystore.location": str(files.keystore),
        "connections.max.reauth.ms": str(SESSION_MS),
    }
    with Broker(settings=settings) as broker:
        add_user(broker)
        yield broker


def of_user(broker: Broker, files: TlsFiles, mechanism: str, password: str = PASSWORD) -> ClientSettings:
    security = Security(ClientTls(str(files.truststore)), ClientLogIn(mechanism, USER, password))
    return ClientSettings(broker.listeners["USERS"], security=security)


@pytest.mark.landing
@each_mechanism
def test_records_go_and_come(broker: Broker, files: TlsFiles, mechanism: str) -> None:
    partition = TopicPartition(f"topic-{uuid.uuid4().hex[:8]}", 0)
    with Cluster(of_user(broker, files, mechanism)) as cluster:
        cluster.topics([partition.topic], create=True)
        sent = batch_of([secrets.token_bytes(512 << 10)])
        cluster.produce({partition: [sent]})
        found = cluster.list_offsets({partition: LATEST})[partition]
        assert found.offset == 1
        (fetched,) = cluster.stream(partition, 0, 1)
        assert bytes(fetched.records)[61:] == bytes(sent)[61:]


@pytest.mark.landing
@each_mechanism
def test_a_session_is_renewed_before_it_ends(broker: Broker, files: TlsFiles, mechanism: str) -> None:
    """The broker closes a connection that asks for anything else after the end of its session."""
    host, _, port = broker.listeners["USERS"].rpartition(":")
    connection = Connection(host, int(port), of_user(broker, files, mechanism))
    body = encode_request(ApiKey.METADATA, 12, {"topics": []})
    first_end_s = connection._log_in_again_s
    assert first_end_s is not None

    def is_renewed() -> bool:
        waiting = connection.send(ApiKey.METADATA, 12, body)
        connection.request(ApiKey.METADATA, 12, body)
        connection.receive(waiting)
        return connection._log_in_again_s is not None and connection._log_in_again_s > first_end_s + SESSION_MS / 1000

    eventually(is_renewed, what="the second renewal of a session")
    connection.close()


@pytest.mark.landing
@each_mechanism
def test_a_wrong_password_ends_the_attempt_at_once(broker: Broker, files: TlsFiles, mechanism: str) -> None:
    with Cluster(of_user(broker, files, mechanism, "wr0ng")) as cluster:
        with pytest.raises(SecurityFailure, match=r"refused the log-in of alice by .*SASL_AUTHENTICATION_FAILED") as no:
            cluster.topics()
        assert "wr0ng" not in str(no.value)


@pytest.mark.landing
def test_a_mechanism_that_is_not_served(files: TlsFiles) -> None:
    settings = {"listeners": "USERS://127.0.0.1:0,B://127.0.0.1:0", "inter.broker.listener.name": "B"}
    settings |= {"listener.security.protocol.map": "USERS:SASL_PLAINTEXT,B:PLAINTEXT"}
    security = Security(None, ClientLogIn("PLAIN", USER, PASSWORD))
    with Broker(settings=settings) as broker:
        with (
            Cluster(ClientSettings(broker.listeners["USERS"], security=security)) as cluster,
            pytest.raises(SecurityFailure, match=r"takes SCRAM-SHA-256, SCRAM-SHA-512"),
        ):
            cluster.topics()
        with (
            Cluster(ClientSettings(broker.listeners["B"], security=security)) as cluster,
            pytest.raises(SecurityFailure, match="without SASL_"),
        ):
            cluster.topics()


@pytest.mark.landing
def test_a_client_of_another_protocol_hears_what_the_listener_may_want(broker: Broker, files: TlsFiles) -> None:
    right = of_user(broker, files, "SCRAM-SHA-256")
    for security, reason in [
        (PLAIN_TEXT, "may want TLS and a log-in"),
        (Security(right.security.tls), "may want a log-in"),
        (Security(sasl=right.security.sasl), "may want TLS"),
    ]:
        with (
            Cluster(replace(right, security=security, retry_timeout_ms=0)) as cluster,
            pytest.raises(BrokerUnreachable, match=reason),
        ):
            cluster.topics()
    with (
        Cluster(replace(right, bootstrap_servers=broker.bootstrap_servers, retry_timeout_ms=0)) as cluster,
        pytest.raises(BrokerUnreachable, match="a listener in plain text does so"),
    ):
        cluster.list_offsets({TopicPartition("none", 0): EARLIEST})
