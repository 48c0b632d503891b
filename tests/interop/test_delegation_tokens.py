"""Delegation tokens, by Kafka's own tool, Java's client, our commands and our client."""

import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from benchmarks.kafka_peer import KafkaJars
from tests.interop.conftest import JVM_FLAGS
from tests.interop.test_sasl_clients import SETTINGS, add_user
from typer.testing import CliRunner

from cordwood.cli.app import app
from cordwood.client.bootstrap import Bootstrap
from cordwood.client.cluster import Cluster
from cordwood.client.errors import SecurityFailure
from cordwood.embedded import Broker
from cordwood.model.settings.token_settings import TOKEN_KEY_FILE
from cordwood.security.java_settings import in_librdkafkas_names

SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    key = tmp_path / "token.key"
    key.write_text("a key of delegation tokens that is long enough\n")
    key.chmod(0o600)
    with Broker(settings={**SETTINGS, TOKEN_KEY_FILE: str(key)}) as broker:
        for name in ("alice", "bob"):
            add_user(broker, name, "secret")
        broker.log.append("orders", None, "a chair")
        yield broker


def java_file(path: Path, user: str, password: str, more: str = "") -> Path:
    jaas = f'{SCRAM} required username="{user}" password="{password}"{more};'
    path.write_text(f"security.protocol=SASL_PLAINTEXT\nsasl.mechanism=SCRAM-SHA-256\nsasl.jaas.config={jaas}\n")
    return path


def librdkafka_file(path: Path, user: str) -> Path:
    path.write_text(
        f"security.protocol=SASL_PLAINTEXT\nsasl.mechanism=SCRAM-SHA-512\nsasl.username={user}\nsasl.password=secret\n"
    )
    return path


def by_token(broker: Broker, jaas: str) -> Bootstrap:
    settings = {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.jaas.config": jaas,
    }
    return Bootstrap.of({"bootstrap.servers": broker.listeners["USERS"], **in_librdkafkas_names(settings)})


@pytest.mark.landing
def test_our_commands_and_our_client(broker: Broker, tmp_path: Path) -> None:
    def cordwood(*words: str, user: str = "alice", fails: bool = False) -> str:
        given = (*words, "-b", broker.listeners["USERS"])
        config = librdkafka_file(tmp_path / f"{user}.properties", user)
        done = CliRunner().invoke(
            app, [*(() if words[0] == "user" else ("token",)), *given, "--client-config", str(config)]
        )
        assert (done.exit_code != 0) == fails, done.output
        return done.output

    file = tmp_path / "jaas"
    told = json.loads(cordwood("create", "--renewer", "bob", "--max-lifetime", "2h", "--file", str(file), "--json"))
    assert (told["owner"], told["renewers"]) == ("User:alice", ["User:bob"])
    assert told["ends_ms"] - told["issued_ms"] == 7_200_000
    assert "hmac" not in told
    assert file.stat().st_mode & 0o777 == 0o600
    jaas = file.read_text().strip().removeprefix("sasl.jaas.config=")
    holder = by_token(broker, jaas)
    assert "hmac" not in repr(holder)
    with Cluster(holder.settings()) as cluster:
        assert "orders" in cluster.topics()
    (listed,) = json.loads(cordwood("list", "--json", user="bob"))
    assert listed == {name: value for name, value in told.items() if name != "file"}
    renewed = json.loads(cordwood("renew", told["id"], "--period", "1h", "--json", user="bob"))
    assert renewed["expires_ms"] < told["ends_ms"]
    assert "no delegation token 'another' that you may see" in cordwood("renew", "another", fails=True)
    assert "DELEGATION_TOKEN_AUTHORIZATION_FAILED" in cordwood("create", "--owner", "alice", user="bob", fails=True)
    with Cluster(holder.settings()) as cluster:
        assert "orders" in cluster.topics()
        cordwood("expire", told["id"], "--yes")
        with pytest.raises(SecurityFailure, match="delegation token that is not over"):
            cluster.topics()
    assert "No delegation tokens" in cordwood("list")
    left = json.loads(cordwood("create", "--renewer", "bob", "--json"))["id"]
    assert f"`cordwood token expire {left}` ends it" in cordwood("user", "remove", "alice", "--yes", user="bob")
    cordwood("expire", left, "--yes", user="bob")


@pytest.mark.interop
def test_kafkas_tool_and_javas_client(broker: Broker, tmp_path: Path, kafka_jars: KafkaJars) -> None:
    def kafka(tool: str, config: Path, *words: str, fails: bool = False) -> str:
        where = ("--bootstrap-server", broker.listeners["USERS"], "--command-config", str(config))
        command = kafka_jars.command(f"org.apache.kafka.tools.{tool}", *where, *words, jvm_flags=JVM_FLAGS)
        done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
        assert (done.returncode != 0) == fails, done.stdout + done.stderr
        return done.stdout + done.stderr

    def tokens(config: Path, *words: str, fails: bool = False) -> str:
        return kafka("DelegationTokenCommand", config, *words, fails=fails)

    alice = java_file(tmp_path / "alice.properties", "alice", "secret")
    bob = java_file(tmp_path / "bob.properties", "bob", "secret")
    made = tokens(alice, "--create", "--max-life-time-period", "-1", "--renewer-principal", "User:bob")
    row = re.search(r"^(\w{32})\s+(\S{86}==)\s+User:alice", made, re.MULTILINE)
    assert row is not None, made
    token_id, secret = row[1], row[2]
    assert secret in tokens(alice, "--describe", "--owner-principal", "User:alice")
    holder = java_file(tmp_path / "holder.properties", token_id, secret, ' tokenauth="true"')
    assert "orders" in kafka("TopicCommand", holder, "--list")
    refused = tokens(holder, "--create", "--max-life-time-period", "-1", fails=True)
    assert "Delegation Token requests are not allowed" in refused
    tokens(bob, "--renew", "--renew-time-period", "-1", "--hmac", secret)
    tokens(bob, "--expire", "--expiry-time-period", "-1", "--hmac", secret)
    assert token_id not in tokens(alice, "--describe", "--owner-principal", "User:alice")
    assert "SaslAuthenticationException" in kafka("TopicCommand", holder, "--list", fails=True)
