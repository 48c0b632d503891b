"""`cordwood user` against a real broker: passwords from a file and the environment, refusals that say what to do."""

from pathlib import Path

import pytest
from confluent_kafka import KafkaError, Producer
from tests.cli.conftest import Cordwood
from tests.deadline import eventually
from tests.etcd.fixtures import StartEtcd

from cordwood.embedded import Broker

KEYS = [{"mechanism": "SCRAM-SHA-256", "iterations": 8192}, {"mechanism": "SCRAM-SHA-512", "iterations": 8192}]


@pytest.fixture
def user(topic: str) -> str:
    """The name of a user that does not exist yet."""
    return topic.replace("cli", "user")


@pytest.fixture(autouse=True)
def password(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CORDWOOD_USER_PASSWORD", "secret")


def listed(cli: Cordwood, user: str) -> list[object]:
    return [each["keys"] for each in cli.json("user", "list") if each["user"] == user]


def test_a_user_is_added_listed_and_removed(cordwood_cli: Cordwood, user: str) -> None:
    assert cordwood_cli("user", "add", user) == f"{user} can log in by SCRAM-SHA-256, SCRAM-SHA-512\n"
    assert listed(cordwood_cli, user) == [KEYS]
    assert user in cordwood_cli("user", "list", "--quiet").splitlines()
    code, error = cordwood_cli.error("user", "add", user)
    assert (code, error["code"], error["hint"]) == (
        1,
        "DUPLICATE_RESOURCE",
        f"`cordwood user password {user}` changes it",
    )
    assert cordwood_cli("user", "password", user) == f"{user} has a new password\n"
    assert cordwood_cli.json("user", "remove", user, "--dry-run")["removed"] is False
    assert listed(cordwood_cli, user) == [KEYS]
    assert cordwood_cli("user", "remove", user, "--yes") == f"{user} is removed\n"
    assert listed(cordwood_cli, user) == []


def test_one_mechanism_and_other_iterations(cordwood_cli: Cordwood, user: str) -> None:
    told = cordwood_cli.json("user", "add", user, "--mechanism", "SCRAM-SHA-512", "--iterations", 4096)
    assert told == {"user": user, "mechanisms": ["SCRAM-SHA-512"], "iterations": 4096}
    cordwood_cli("user", "password", user)
    assert listed(cordwood_cli, user) == [[{"mechanism": "SCRAM-SHA-512", "iterations": 4096}]]
    assert cordwood_cli.error("user", "add", user, "--mechanism", "GSSAPI")[0] == 2


def test_a_password_comes_from_a_file(
    cordwood_cli: Cordwood, user: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("CORDWOOD_USER_PASSWORD")
    code, error = cordwood_cli.error("user", "add", user)
    assert (code, error["hint"]) == (2, "give --password-file FILE, or set CORDWOOD_USER_PASSWORD")
    file = tmp_path / "password"
    for content, refusal in [("", "cannot be empty"), ("\n", "cannot be empty"), ("a\nb\n", "one line")]:
        file.write_text(content)
        assert refusal in cordwood_cli.error("user", "add", user, "--password-file", file)[1]["message"]
    assert "No such file" in cordwood_cli.error("user", "add", user, "--password-file", tmp_path / "no")[1]["message"]
    file.write_text("secret\n")
    cordwood_cli("user", "add", user, "--password-file", file)
    assert listed(cordwood_cli, user) == [KEYS]


def test_a_user_that_does_not_exist_is_named_with_similar_ones(cordwood_cli: Cordwood, user: str) -> None:
    cordwood_cli("user", "add", user)
    for command in (("password", user[:-1]), ("remove", user[:-1], "--yes")):
        code, error = cordwood_cli.error("user", *command)
        assert (code, error["code"]) == (4, "RESOURCE_NOT_FOUND")
        assert user in error["hint"]


LISTENERS = {
    "listeners": "PLAINTEXT://127.0.0.1:0,USERS://127.0.0.1:0",
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,USERS:SASL_PLAINTEXT",
}


def logs_in(broker: Broker, password: str) -> bool:
    errors: list[KafkaError] = []
    settings = {
        "bootstrap.servers": broker.listeners["USERS"],
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.username": "alice",
        "sasl.password": password,
        "error_cb": errors.append,
    }
    acknowledged: list[object] = []
    producer = Producer(settings)
    producer.produce("orders", b"x", on_delivery=lambda error, _: acknowledged.append(error))
    eventually(lambda: producer.flush(0.1) == 0 or bool(errors), what="a log-in or a refusal")
    return acknowledged == [None]


def test_the_first_user_is_there_before_the_first_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cli, directory = Cordwood("127.0.0.1:1"), tmp_path / "data"
    cli("user", "add", "alice", "--data-dir", directory, "--dry-run")
    assert not directory.exists()
    cli("user", "add", "alice", "--data-dir", directory)
    code, error = cli.error("user", "add", "alice", "--data-dir", directory)
    assert (code, error["code"]) == (1, "DUPLICATE_RESOURCE")
    with Broker(data_dir=directory, settings=LISTENERS) as broker:
        assert logs_in(broker, "secret")
        assert not logs_in(broker, "Secret")
        code, error = cli.error("user", "add", "bob", "--data-dir", directory)
        assert (code, error["hint"]) == (1, "nothing was changed")
    cli("user", "add", "bob", "--data-dir", directory)
    with Broker(data_dir=directory, settings=LISTENERS) as broker:
        assert logs_in(broker, "secret")
        assert Cordwood(broker.bootstrap_servers)("user", "list", "--quiet").split() == ["alice", "bob"]


def test_a_directory_of_an_older_version_is_refused_with_the_command_that_helps(tmp_path: Path) -> None:
    with Broker(data_dir=tmp_path / "data", settings={"metadata.version.max": 2}):
        pass
    error = Cordwood("127.0.0.1:1").error("user", "add", "alice", "--data-dir", tmp_path / "data")[1]
    assert error["code"] == "UNSUPPORTED_VERSION"
    assert "`cordwood cluster upgrade`" in error["message"]


def test_the_first_user_of_a_cluster_is_written_into_its_store(start_etcd: StartEtcd, tmp_path: Path) -> None:
    cli = Cordwood("127.0.0.1:1")
    with start_etcd() as etcd:
        store = f"etcd://{','.join(etcd.endpoints)}"
        place = ("--store", store, "--cluster", "woods")
        cli("user", "add", "alice", *place, "--dry-run")
        cli("user", "add", "alice", *place)
        assert cli.error("user", "add", "alice", *place)[1]["code"] == "DUPLICATE_RESOURCE"
        assert cli.error("user", "add", "bob", "--store", store)[1]["code"] == "INVALID_CONFIG"
        settings = {**LISTENERS, "cluster.store": store, "cluster.name": "woods", "node.id": "1"}
        with Broker(data_dir=tmp_path / "data", settings=settings) as broker:
            assert logs_in(broker, "secret")
