"""The security trail of a running broker: kept where somebody is asked, in a file, never in the way."""

from __future__ import annotations

import json
import socket
import stat
from pathlib import Path
from typing import Any

import pytest
from tests.certificates import tls_files
from tests.deadline import eventually
from tests.raw_client import RawClient

from cordwood.embedded import Broker
from cordwood.model.errors import ErrorCode
from cordwood.model.settings.authorizer_settings import STANDARD_AUTHORIZER
from cordwood.model.settings.broker_settings import BrokerSettings
from cordwood.wire.apis import ApiKey

RULES = {
    "authorizer.class.name": STANDARD_AUTHORIZER,
    "listeners": "PLAINTEXT://127.0.0.1:0,USERS://127.0.0.1:0,TLS://127.0.0.1:0",
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,USERS:SASL_PLAINTEXT,TLS:SSL",
}
NEW = {"name": "orders", "num_partitions": 1, "replication_factor": 1, "assignments": [], "configs": []}


def settings(tmp_path: Path, **others: str) -> dict[str, str]:
    return {**RULES, "ssl.keystore.location": str(tls_files(tmp_path).keystore), **others}


def trail_of(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


def create(broker: Broker) -> ErrorCode:
    answer = RawClient(broker.bootstrap_servers).send(ApiKey.CREATE_TOPICS, 4, topics=[NEW], timeout_ms=1000)
    return ErrorCode(answer.topics[0].error_code)


def test_changes_refusals_log_ins_and_handshakes_are_lines_of_a_file(tmp_path: Path) -> None:
    file = tmp_path / "data" / "security-trail" / "broker-1.jsonl"
    own = settings(tmp_path, **{"security.trail.window.ms": "50"})
    with Broker(data_dir=tmp_path / "data", settings={**own, "super.users": "User:admin"}) as broker:
        assert [create(broker) for _ in range(3)] == [ErrorCode.TOPIC_AUTHORIZATION_FAILED] * 3
        client = RawClient(broker.listeners["USERS"])
        client.request(ApiKey.METADATA, 1, topics=None)
        host, _, port = broker.listeners["TLS"].rpartition(":")
        with socket.create_connection((host, int(port)), timeout=60) as stranger:
            stranger.sendall(b"GET / HTTP/1.1\r\n\r\n")
            eventually(lambda: len({line["class_uid"] for line in trail_of(file)}) == 2)
            eventually(lambda: any(line.get("auth_protocol") == "TLS" for line in trail_of(file)))
    lines = trail_of(file)
    refused = [line for line in lines if line["class_uid"] == 6003]
    assert sum(line["count"] for line in refused) == 3
    assert {line["actor"]["user"]["uid"] for line in refused} == {"User:ANONYMOUS"}
    assert {(line["src_endpoint"]["ip"], line["dst_endpoint"]["svc_name"]) for line in refused} == {
        ("127.0.0.1", "PLAINTEXT")
    }
    assert sorted(
        (line["dst_endpoint"]["svc_name"], line["status_detail"]) for line in lines if line not in refused
    ) == [
        ("TLS", "the peer speaks HTTP"),
        ("USERS", "Metadata came before the peer has logged in"),
    ]
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    with Broker(data_dir=tmp_path / "data", settings={**own, "super.users": "User:ANONYMOUS"}) as broker:
        assert create(broker) is ErrorCode.NONE
        eventually(lambda: trail_of(file)[-1]["message"], to_be="User:ANONYMOUS changed: Create of the topic orders")
        assert trail_of(file)[: len(lines)] == lines


def test_a_broker_serves_though_the_directory_of_its_trail_cannot_be(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "no-directory").touch()
    own = settings(tmp_path, **{"security.trail.directory": str(tmp_path / "no-directory")})
    with Broker(data_dir=tmp_path / "data", settings={**own, "super.users": "User:ANONYMOUS"}) as broker:
        assert create(broker) is ErrorCode.NONE
        eventually(lambda: "the security trail cannot be written" in caplog.text)
        assert RawClient(broker.bootstrap_servers).send(ApiKey.METADATA, 1, topics=None).topics[0].name == "orders"


@pytest.mark.parametrize(
    ("texts", "keeps"),
    [
        ({}, False),
        ({"authorizer.class.name": STANDARD_AUTHORIZER}, True),
        ({"listeners": "SASL_PLAINTEXT://:0"}, True),
        ({"listeners": "SASL_PLAINTEXT://:0", "security.trail.enable": "false"}, False),
        ({"security.trail.enable": "true"}, True),
    ],
)
def test_a_trail_is_kept_where_somebody_is_asked(texts: dict[str, str], keeps: bool) -> None:
    assert BrokerSettings.from_texts(texts).keeps_security_trail is keeps


def test_a_broker_that_asks_nobody_has_neither_thread_nor_file(tmp_path: Path) -> None:
    with Broker(data_dir=tmp_path / "data") as broker:
        assert create(broker) is ErrorCode.NONE
    assert not (tmp_path / "data" / "security-trail").exists()
