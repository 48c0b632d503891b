"""`cordwood serve --secure` as a process: its files work as they are, and later starts take them."""

import json
import logging
import stat
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewTopic
from cryptography.x509 import load_pem_x509_certificate
from tests.broker_process import BrokerProcess
from tests.certificates import tls_files
from tests.cli.conftest import Cordwood
from tests.deadline import eventually

from cordwood.broker.secure.client_files import make_private_directory, write_private
from cordwood.embedded import Broker
from cordwood.model.failure import Failure
from cordwood.model.settings.setting import InvalidSetting

TIMEOUT_S = 60
REFUSED_WITHIN_S = 3
"""A client that is refused tries again until its timeout."""
TWO = "listener.security.protocol.map=PLAINTEXT:PLAINTEXT,A:PLAINTEXT"
SILENT = logging.getLogger("tests.silent")


def secure_broker(data: Path, *options: str) -> BrokerProcess:
    return BrokerProcess(data, options=["--secure", *options])


def client(file: Path) -> dict[str, Any]:
    """What a program of a user makes of the file."""
    lines = file.read_text().splitlines()
    return {name: value for name, _, value in (line.partition("=") for line in lines)}


def produced(file: Path, topic: str) -> KafkaError | None:
    """The error of one record's delivery."""
    outcome: list[KafkaError | None] = []
    producer = Producer(client(file))
    producer.produce(topic, b"x", on_delivery=lambda error, _: outcome.append(error))
    assert producer.flush(TIMEOUT_S) == 0
    return outcome[0]


def test_the_files_of_the_first_start_work_as_they_are_and_a_second_start_takes_them(tmp_path: Path) -> None:
    data = tmp_path / "data"
    secure = data / "secure"
    files = [secure / name for name in ("librdkafka.properties", "java.properties", "ca.pem")]
    with secure_broker(data) as broker:
        assert all(str(file) in broker.output() for file in files)
        assert ", SASL_SSL (data in " in broker.output()
        assert client(files[0])["bootstrap.servers"] == client(files[1])["bootstrap.servers"] == broker.bootstrap
        assert client(files[0])["sasl.password"] not in broker.output()
        assert stat.S_IMODE(secure.stat().st_mode) == 0o700
        assert {stat.S_IMODE(file.stat().st_mode) for file in secure.iterdir()} == {0o600}
        admin = AdminClient(client(files[0]))
        admin.create_topics([NewTopic("orders", 1)])["orders"].result(TIMEOUT_S)
        assert produced(files[0], "orders") is None
    before = {file.name: file.read_bytes() for file in secure.iterdir()}
    with secure_broker(data) as broker:
        assert produced(files[0], "orders") is None
        for name, content in before.items():
            there = (secure / name).read_bytes()
            assert [line for line in there.splitlines() if not line.startswith(b"bootstrap")] == [
                line for line in content.splitlines() if not line.startswith(b"bootstrap")
            ]


def test_another_user_gets_files_and_no_more_rights_than_it_is_given(tmp_path: Path) -> None:
    data = tmp_path / "data"
    admin = data / "secure/librdkafka.properties"
    with secure_broker(data) as broker:
        cli = Cordwood("")
        told = cli.json("user", "add", "alice", "--client-config", admin)
        alice = Path(told["files"]["librdkafka"])
        assert alice == data / "secure/users/alice/librdkafka.properties"
        assert stat.S_IMODE(alice.stat().st_mode) == 0o600
        assert client(alice)["bootstrap.servers"] == broker.bootstrap
        refused = produced(alice, "orders")
        assert refused is not None
        assert refused.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED
        cli("acl", "add", "alice", "--producer", "--topic", "orders", "--client-config", admin)
        assert produced(alice, "orders") is None
        assert cli.error("acl", "list", "--client-config", alice)[1]["code"] == "CLUSTER_AUTHORIZATION_FAILED"
        another = tmp_path / "another"
        another.write_text("another password\n")
        told = cli.json("user", "password", "alice", "--password-file", another, "--client-config", admin)
        assert told["files"]["librdkafka"] == str(alice)
        assert client(alice)["sasl.password"] == "another password"
        assert produced(alice, "orders") is None
        cli("user", "password", "alice", "--client-config", admin)
        assert client(alice)["sasl.password"] != "another password"
        assert produced(alice, "orders") is None
    cli("user", "add", "../bob", "--data-dir", data)
    with secure_broker(data) as broker:
        bob = data / "secure/users/%2E.%2Fbob/librdkafka.properties"
        assert client(bob)["bootstrap.servers"] == client(alice)["bootstrap.servers"] == broker.bootstrap
        assert produced(alice, "orders") is None
        assert Cordwood("").error("user", "list", "--client-config", bob)[1]["code"] == "CLUSTER_AUTHORIZATION_FAILED"


def test_who_does_not_log_in_is_not_served(tmp_path: Path) -> None:
    other = tls_files(tmp_path)
    with secure_broker(tmp_path / "data") as broker:
        settings = client(tmp_path / "data/secure/librdkafka.properties")
        for wrong in (
            {"sasl.password": "wrong"},
            {"sasl.username": "root"},
            {"security.protocol": "SSL"},
            {"security.protocol": "PLAINTEXT"},
            {"ssl.ca.location": str(other.truststore)},
        ):
            with pytest.raises(KafkaException):
                AdminClient({**settings, **wrong}, logger=SILENT).list_topics(timeout=REFUSED_WITHIN_S)
        code, error = Cordwood(broker.bootstrap).error("topic", "list", "--timeout", f"{REFUSED_WITHIN_S}s")
        assert (code, error["code"]) == (3, "TLS_FAILED")
        assert "--client-config" in error["hint"]
        assert broker.alive


def test_a_start_that_was_interrupted_is_begun_anew(tmp_path: Path) -> None:
    secure = tmp_path / "data/secure"
    with secure_broker(tmp_path / "data"):
        pass
    before = (secure / "librdkafka.properties").read_text()
    (secure / "broker.pem").unlink()
    with secure_broker(tmp_path / "data"):
        assert (secure / "librdkafka.properties").read_text() != before
        assert produced(secure / "librdkafka.properties", "orders") is None


def test_a_link_in_the_place_of_a_file_is_not_written_through(tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_text("mine")
    (tmp_path / "ca.key.new").symlink_to(victim)
    write_private(str(tmp_path / "ca.key"), "secret")
    assert victim.read_text() == "mine"
    assert (tmp_path / "ca.key").read_text() == "secret"
    assert not (tmp_path / "ca.key").is_symlink()


def test_a_directory_that_others_may_enter_is_closed_before_keys_are_in_it(tmp_path: Path) -> None:
    (tmp_path / "secure").mkdir()
    (tmp_path / "secure").chmod(0o777)
    make_private_directory(str(tmp_path / "secure"))
    assert stat.S_IMODE((tmp_path / "secure").stat().st_mode) == 0o700


def test_a_directory_of_another_user_gets_no_keys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.geteuid", lambda: tmp_path.stat().st_uid + 1)
    with pytest.raises(Failure, match="belongs to another user"):
        make_private_directory(str(tmp_path))


def test_a_start_with_another_advertised_host_signs_another_certificate(tmp_path: Path) -> None:
    secure = tmp_path / "data/secure"
    with secure_broker(tmp_path / "data"):
        pass
    authority, before = (secure / "ca.pem").read_bytes(), (secure / "broker.pem").read_bytes()
    with secure_broker(tmp_path / "data", "--set", "advertised.listeners=PLAINTEXT://broker.example:0") as broker:
        assert "the certificate does not name broker.example" in broker.output()
    pem = (secure / "broker.pem").read_bytes()
    assert pem != before
    assert b"broker.example" in load_pem_x509_certificate(pem[pem.index(b"-----BEGIN CERT") :]).tbs_certificate_bytes
    assert (secure / "ca.pem").read_bytes() == authority
    assert client(secure / "java.properties")["bootstrap.servers"].startswith("broker.example:")


def test_a_start_in_plain_text_is_refused_unless_the_settings_mean_it(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with secure_broker(data):
        pass
    before = {file: file.stat().st_mtime_ns for file in data.rglob("*")}
    for options in ((), ("--workers", "2"), ("--set", "num.partitions=2")):
        broker = BrokerProcess(data, options=options)
        with pytest.raises(AssertionError, match="did not get ready"):
            broker.start()
        assert f"{data} was made with --secure" in broker.output()
        assert "--set authorizer.class.name=" in broker.output()
    with pytest.raises(InvalidSetting, match="was made with --secure"):
        Broker(data_dir=data)
    assert before == {file: file.stat().st_mtime_ns for file in data.rglob("*")}
    with BrokerProcess(data, settings={"authorizer.class.name": ""}) as broker:
        assert AdminClient({"bootstrap.servers": broker.bootstrap}).list_topics(timeout=TIMEOUT_S)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            ("--store", "etcd://127.0.0.1:1", "--cluster", "c", "--node-id", "1"),
            "--secure is for the brokers of one machine",
        ),
        (("--set", "ssl.client.auth=none"), "--secure makes ssl.client.auth itself"),
        (
            ("--set", "listeners=A://127.0.0.1:0,PLAINTEXT://127.0.0.1:0", "--set", TWO),
            "--secure has one listener",
        ),
    ],
)
def test_what_does_not_go_with_secure_is_refused_and_changes_nothing(
    tmp_path: Path, options: tuple[str, ...], message: str
) -> None:
    broker = secure_broker(tmp_path / "data", *options)
    with pytest.raises(AssertionError, match="did not get ready"):
        broker.start()
    assert message in broker.output()
    assert "docs/security.md" in broker.output()
    assert not (tmp_path / "data").exists()


def test_metrics_over_https_have_the_certificate_of_the_first_start(tmp_path: Path) -> None:
    pem = tmp_path / "data/secure/broker.pem"
    metrics = ("--set", "metrics.listener=https://127.0.0.1:0")
    with secure_broker(
        tmp_path / "data", *metrics, "--set", f"listener.name.https.ssl.keystore.location={pem}"
    ) as broker:
        assert "metrics and health at https://127.0.0.1:" in broker.output()


def test_metadata_of_an_older_version_is_refused_with_the_cure(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "data", settings={"metadata.version.max": "2"}):
        pass
    broker = secure_broker(tmp_path / "data")
    with pytest.raises(AssertionError, match="did not get ready"):
        broker.start()
    assert "cordwood cluster upgrade" in broker.output()
    assert not (tmp_path / "data/secure").exists()


def test_the_ready_line_for_scripts_names_the_listener_and_the_files(tmp_path: Path) -> None:
    broker = secure_broker(tmp_path / "data", "--json")
    broker.launch()

    def ready() -> Any:
        lines = [line for line in broker.output().splitlines() if line.startswith("{")]
        return json.loads(lines[0]) if lines else None

    told = eventually(ready, what="the ready line")
    broker.end()
    assert told is not None
    secure = tmp_path / "data/secure"
    assert told["secure"] == {
        "listener": "SASL_SSL",
        "authority": str(secure / "ca.pem"),
        "librdkafka": str(secure / "librdkafka.properties"),
        "java": str(secure / "java.properties"),
    }
