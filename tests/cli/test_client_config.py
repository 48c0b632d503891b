"""Commands reach a broker whose only listener for them wants TLS, a log-in and rights, by `--client-config`."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.certificates import Authority, TlsFiles, tls_files
from tests.cli.conftest import Cordwood

from cordwood.embedded import Broker
from cordwood.model.failure import ExitCode
from cordwood.model.settings.authorizer_settings import STANDARD_AUTHORIZER


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> TlsFiles:
    return tls_files(tmp_path_factory.mktemp("tls"))


@pytest.fixture(scope="module")
def broker(files: TlsFiles) -> Iterator[Broker]:
    settings = {
        "authorizer.class.name": STANDARD_AUTHORIZER,
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,USERS:SASL_SSL",
        "listeners": "PLAINTEXT://127.0.0.1:0,USERS://127.0.0.1:0",
        "ssl.keystore.location": str(files.keystore),
        "super.users": "User:ANONYMOUS;User:root",
    }
    with Broker(settings=settings) as broker:
        here = Cordwood(broker.bootstrap_servers)
        secrets = files.truststore.with_name("password")
        secrets.write_text("s3cret")
        for user in ("root", "stranger"):
            here("user", "add", user, "--password-file", secrets)
        yield broker


def config_file(files: TlsFiles, directory: Path, **changed: str) -> Path:
    settings = {
        "security.protocol": "SASL_SSL",
        "ssl.ca.location": str(files.truststore),
        "sasl.mechanism": "SCRAM-SHA-256",
        "sasl.username": "root",
        "sasl.password": "s3cret",
        **{name.replace("_", "."): value for name, value in changed.items()},
    }
    file = directory / "client.properties"
    file.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
    return file


@pytest.fixture
def config(files: TlsFiles, tmp_path: Path) -> Path:
    return config_file(files, tmp_path)


@pytest.fixture
def cli(broker: Broker, config: Path) -> Cordwood:
    return Cordwood(broker.listeners["USERS"], {"CORDWOOD_CLIENT_CONFIG": str(config)})


def test_commands_of_every_kind_work(cli: Cordwood) -> None:
    cli("topic", "create", "orders", "--partitions", "2")
    assert [each["name"] for each in cli.json("topic", "list")] == ["orders"]
    assert cli.json("topic", "describe", "orders")
    cli("produce", "orders", stdin="one\ntwo\n")
    assert sorted(cli("consume", "orders", "--exit-at-end", "--from", "beginning").split()) == ["one", "two"]
    assert cli.json("config", "describe", "--topic", "orders")
    cli("config", "alter", "--topic", "orders", "-s", "retention.ms=1d")
    assert cli.json("group", "list") == []
    assert cli.json("group", "lag") == []
    assert cli.json("transaction", "list") == []
    assert cli.json("transaction", "families") == []
    assert cli.json("cluster", "status")["nodes"]
    assert cli.json("cluster", "leaders")
    assert {each["user"] for each in cli.json("user", "list")} == {"root", "stranger"}
    assert cli.json("client", "list", "--sample", "0.1") is not None
    cli("topic", "truncate", "orders", "--before", "end", "--yes")
    cli("topic", "delete", "orders", "--yes")


def test_the_option_is_the_same_as_the_variable(broker: Broker, config: Path) -> None:
    with config.open("a") as file:
        file.write(f"bootstrap.servers={broker.listeners['USERS']}\n")
    cli = Cordwood("")
    by_variable = Cordwood("", {"CORDWOOD_CLIENT_CONFIG": str(config)})
    for command in (("topic", "list"), ("cluster", "status")):
        assert cli.json(*command, "--client-config", config) == by_variable.json(*command)


@pytest.mark.parametrize("command", [("topic", "list"), ("cluster", "status"), ("group", "list")])
def test_a_wrong_password_and_an_unknown_authority_are_told_apart(
    broker: Broker, files: TlsFiles, tmp_path: Path, command: tuple[str, ...]
) -> None:
    other = tmp_path / "other.pem"
    other.write_bytes(Authority("another").pem)
    # These are the words of the first question, which is asked before librdkafka tries until its timeout.
    for changed, expected, words in [
        ({"sasl_password": "wr0ng"}, "SASL_AUTHENTICATION_FAILED", " refused the log-in of "),
        ({"ssl_ca_location": str(other)}, "TLS_FAILED", "ssl.ca.location"),
    ]:
        config = config_file(files, tmp_path, **changed)
        code, error = Cordwood(broker.listeners["USERS"]).error(*command, "--client-config", config)
        assert (code, error["code"]) == (ExitCode.NOT_REACHABLE, expected)
        assert words in error["message"]
        assert error["message"].startswith(f"broker at {broker.listeners['USERS']}")
        assert "wr0ng" not in error["message"]


def test_settings_that_cannot_be_meant_are_refused(broker: Broker, files: TlsFiles, tmp_path: Path) -> None:
    config = config_file(files, tmp_path, security_protocol="PLAINTEXT")
    code, error = Cordwood(broker.listeners["USERS"]).error("topic", "list", "--client-config", config)
    assert (code, error["code"]) == (ExitCode.USAGE, "INVALID_CONFIG")
    assert "ssl.ca.location has no effect with security.protocol=PLAINTEXT" in error["message"]


def test_a_user_without_rights_sees_nothing(broker: Broker, files: TlsFiles, tmp_path: Path) -> None:
    config = config_file(files, tmp_path, sasl_username="stranger")
    stranger = Cordwood(broker.listeners["USERS"], {"CORDWOOD_CLIENT_CONFIG": str(config)})
    assert stranger.json("topic", "list") == []
    assert stranger.error("topic", "create", "mine")[1]["code"].endswith("AUTHORIZATION_FAILED")
