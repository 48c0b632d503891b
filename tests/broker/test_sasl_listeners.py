"""A listener that asks who its peers are, on real sockets: what strangers can send, and for how long."""

import socket
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.broker_process import BrokerProcess
from tests.certificates import tls_files
from tests.deadline import eventually
from tests.raw_client import RawClient

from cordwood.broker.network import connections
from cordwood.embedded import Broker
from cordwood.model.failure import ExitCode
from cordwood.model.jaas import jaas
from cordwood.model.settings.authorizer_settings import STANDARD_AUTHORIZER
from cordwood.model.settings.broker_settings import BrokerSettings
from cordwood.model.settings.setting import InvalidSetting
from cordwood.wire.apis import ApiKey

SASL = {
    "listeners": "PLAINTEXT://127.0.0.1:0,USERS://127.0.0.1:0",
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,USERS:SASL_PLAINTEXT",
}


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker(settings=SASL) as broker:
        yield broker


def connect(broker: Broker) -> socket.socket:
    host, _, port = broker.listeners["USERS"].rpartition(":")
    return socket.create_connection((host, int(port)), timeout=60)


def is_closed(peer: socket.socket) -> bool:
    """True if the broker closes the connection without a byte; waits for it."""
    try:
        return peer.recv(1) == b""
    except ConnectionResetError:
        return True


def test_a_request_before_the_log_in_closes_the_connection(broker: Broker) -> None:
    client = RawClient(broker.listeners["USERS"])
    client.request(ApiKey.METADATA, 1, topics=None)
    with pytest.raises((ConnectionError, AssertionError)):
        client.answer(ApiKey.METADATA, 1)


@pytest.mark.parametrize("size", [512 * 1024 + 1, 1 << 20, 1 << 30])
def test_a_large_request_before_the_log_in_closes_the_connection_at_its_size(broker: Broker, size: int) -> None:
    with connect(broker) as peer:
        peer.sendall(struct.pack(">i", size))
        assert is_closed(peer)


def test_a_message_of_half_a_mebibyte_is_answered(broker: Broker) -> None:
    client = RawClient(broker.listeners["USERS"])
    assert client.send(ApiKey.SASL_HANDSHAKE, 1, mechanism="SCRAM-SHA-256").error_code == 0
    answer = client.send(ApiKey.SASL_AUTHENTICATE, 2, auth_bytes=b"n" * (512 * 1024 - 100))
    assert answer.error_code == 58


def test_a_peer_that_says_nothing_or_stops_half_way_is_closed(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "LOG_IN_S", 0.2)
    with connect(broker) as silent, connect(broker) as half:
        half.sendall(struct.pack(">ihh", 100, ApiKey.SASL_HANDSHAKE, 1))
        chosen = RawClient(broker.listeners["USERS"])
        assert chosen.send(ApiKey.SASL_HANDSHAKE, 1, mechanism="SCRAM-SHA-256").error_code == 0
        assert is_closed(silent)
        assert is_closed(half)
        assert is_closed(chosen._socket)
    eventually(lambda: RawClient(broker.bootstrap_servers).send(ApiKey.API_VERSIONS, 0).error_code == 0, what="service")


def test_thousands_of_half_log_ins_leave_nothing_behind(broker: Broker) -> None:
    for number in range(1000):
        client = RawClient(broker.listeners["USERS"])
        client.request(ApiKey.SASL_HANDSHAKE, 1, mechanism="SCRAM-SHA-512")
        if number % 2:
            client.answer(ApiKey.SASL_HANDSHAKE, 1)
            client.request(ApiKey.SASL_AUTHENTICATE, 2, auth_bytes=b"n,,n=alice,r=nonce")
        client._socket.close()

    def peers() -> int:
        assert broker._run is not None
        return len(broker._run._started.result().node.authentications._peers)

    eventually(lambda: peers() == 0, what="no authentication of a closed connection")


def test_brokers_without_a_user_or_with_a_mechanism_that_their_listener_does_not_take_do_not_start() -> None:
    texts = {**SASL, "inter.broker.listener.name": "USERS", "node.id": "1", "cluster.name": "c"}
    texts["cluster.store"] = "etcd://127.0.0.1:2379"
    name = "listener.name.users.scram-sha-512.sasl.jaas.config"
    with pytest.raises(InvalidSetting, match=f"set {name} in the configuration file"):
        BrokerSettings.from_texts(texts)
    texts[name] = jaas("broker", "of the brokers")
    log_in = BrokerSettings.from_texts(texts).brokers_log_in
    assert log_in is not None
    assert log_in.user == ("broker", "of the brokers")
    texts["sasl.enabled.mechanisms"] = "SCRAM-SHA-256,PLAIN"
    with pytest.raises(InvalidSetting, match="listener USERS takes SCRAM-SHA-256, PLAIN"):
        BrokerSettings.from_texts(texts)


@pytest.mark.parametrize("mechanisms", ["", "GSSAPI", "SCRAM-SHA-256,DIGEST-MD5"])
def test_mechanisms_that_there_are_not_are_refused(mechanisms: str) -> None:
    with pytest.raises(InvalidSetting, match=r"sasl\.enabled\.mechanisms"):
        BrokerSettings.from_texts({"sasl.enabled.mechanisms": mechanisms})


def test_passwords_in_plain_text_are_warned_of(caplog: pytest.LogCaptureFixture) -> None:
    with Broker(settings={**SASL, "listener.name.users.sasl.enabled.mechanisms": "PLAIN"}) as broker:
        client = RawClient(broker.listeners["USERS"])
        assert list(client.send(ApiKey.SASL_HANDSHAKE, 1, mechanism="PLAIN").mechanisms) == ["PLAIN"]
    assert "clients of the listener USERS may send their passwords in plain text" in caplog.text


@pytest.mark.parametrize(
    ("listeners", "certificates", "asking_nobody"),
    [
        ("PLAINTEXT://127.0.0.1:0,USERS://127.0.0.1:0", "none", ["PLAINTEXT (PLAINTEXT)"]),
        ("SSL://127.0.0.1:0", "requested", ["SSL (SSL)"]),
        ("USERS://127.0.0.1:0,SSL://127.0.0.1:0", "required", []),
    ],
)
def test_rules_of_access_at_a_listener_that_asks_nobody_are_warned_of(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, listeners: str, certificates: str, asking_nobody: list[str]
) -> None:
    files = tls_files(tmp_path)
    settings = {
        "authorizer.class.name": STANDARD_AUTHORIZER,
        "inter.broker.listener.name": listeners.split("://")[0],
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,USERS:SASL_PLAINTEXT,SSL:SSL",
        "listeners": listeners,
        "ssl.client.auth": certificates,
        "ssl.keystore.location": str(files.keystore),
        "ssl.truststore.location": str(files.truststore),
    }
    with Broker(settings=settings):
        pass
    warned = [line for line in caplog.messages if line.startswith("rules of access are on")]
    assert [line.split("the listener ")[1].split(" asks nobody")[0] for line in warned] == asking_nobody


def test_an_authorizer_is_refused_on_metadata_of_an_older_version_with_the_cure(tmp_path: Path) -> None:
    with Broker(data_dir=tmp_path / "data", settings={"metadata.version.max": 2}):
        pass
    broker = BrokerProcess(tmp_path / "data", settings={"authorizer.class.name": STANDARD_AUTHORIZER})
    broker.launch()
    eventually(lambda: broker.exit_code, to_be=ExitCode.USAGE, what="the end of the start")
    assert "error: authorizer.class.name is set, and the cluster's metadata has version 2" in broker.output()
    assert "cordwood cluster upgrade" in broker.output()
    assert "Traceback" not in broker.output()
    broker.end()
    broker.settings.clear()
    with broker:
        pass
