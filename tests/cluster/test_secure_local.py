"""`cluster up --secure` and `serve --secure --workers` as real processes, with real clients on the files they make."""

from __future__ import annotations

import json
import re
import socket
import ssl
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewTopic
from tests.broker.test_secure_start import client, produced
from tests.cluster.local_cluster import CORDWOOD, LocalCluster, clean_environment
from tests.cluster.test_workers import LocalWorkers
from tests.deadline import eventually

pytestmark = pytest.mark.timeout(300)
TIMEOUT_S = 60


def admins_file(directory: Path) -> Path:
    return directory / "secure/librdkafka.properties"


def create(directory: Path, partitions: int, replicas: int) -> None:
    admin = AdminClient(client(admins_file(directory)))
    admin.create_topics([NewTopic("orders", partitions, replicas)])["orders"].result(TIMEOUT_S)


def values_of(file: Path, count: int) -> Sequence[bytes | None]:
    """The first records of the topic, as a group reads them."""
    consumer = Consumer({**client(file), "group.id": "shop", "auto.offset.reset": "earliest"})
    consumer.subscribe(["orders"])
    found: list[bytes | None] = []

    def read() -> bool:
        message = consumer.poll(1)
        if message is not None and message.error() is None:
            found.append(message.value())
        return len(found) >= count

    eventually(read, what="the records")
    consumer.close()
    return found


def cordwood(*words: str) -> str:
    done = subprocess.run(
        [*CORDWOOD, *words], env=clean_environment(), capture_output=True, text=True, timeout=TIMEOUT_S
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_secure_cluster_serves_its_users_alone_and_later_starts_take_what_is_there(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with LocalCluster(data, "--secure", "--metadata", "supervisor") as cluster:
        create(data, 3, 3)
        assert produced(admins_file(data), "orders") is None
        with pytest.raises(KafkaException):
            AdminClient({"bootstrap.servers": cluster.bootstrap, "socket.timeout.ms": 3000}).list_topics(timeout=3)
        added = json.loads(cordwood("user", "add", "alice", "--json", "--client-config", str(admins_file(data))))
        alice = Path(added["files"]["librdkafka"])
        refused = produced(alice, "orders")
        assert refused is not None
        assert "authorization" in refused.str().lower()
        words = ("--consumer", "--topic", "orders", "--group", "shop", "--client-config", str(admins_file(data)))
        cordwood("acl", "add", "alice", *words)
        assert values_of(alice, 1) == [b"x"]
        (inner,) = re.findall(r"BROKERS://127\.0\.0\.1:(\d+)", cluster.log_of(1))
        assert not takes_a_stranger(int(inner), data / "secure/ca.pem")
        assert "password" not in " ".join(Path(f"/proc/{pid}/cmdline").read_text() for pid in cluster.pids.values())
    in_plain_text = subprocess.run(
        [*CORDWOOD, "cluster", "up", "--data-dir", str(data), "--metadata", "supervisor"],
        env=clean_environment(),
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
    )
    assert f"{data} was made with --secure" in in_plain_text.stderr
    before = (data / "secure/broker.pem").read_bytes()
    with LocalCluster(data, "--secure", "--metadata", "supervisor"):
        assert produced(admins_file(data), "orders") is None
        assert produced(alice, "orders") is not None
    assert (data / "secure/broker.pem").read_bytes() == before


def takes_a_stranger(port: int, authority: Path) -> bool:
    """True if the listener of brokers answers a peer without a certificate."""
    context = ssl.create_default_context(cafile=str(authority))
    with socket.create_connection(("127.0.0.1", port), timeout=TIMEOUT_S) as plain:
        try:
            with context.wrap_socket(plain, server_hostname="127.0.0.1") as peer:
                peer.sendall(bytes.fromhex("0000000b 0012 0000 00000007 0001 72".replace(" ", "")))
                return peer.recv(1) != b""
        except (ssl.SSLError, ConnectionError):
            return False


def test_secure_workers_serve_every_partition_by_the_files_of_the_directory(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with LocalWorkers(data, 2, "--secure") as workers:
        servers = client(admins_file(data))["bootstrap.servers"]
        assert servers == workers.bootstrap
        create(data, 4, 1)
        producer = Producer({**client(admins_file(data)), "transactional.id": "one"})
        producer.init_transactions(TIMEOUT_S)
        producer.begin_transaction()
        for partition in range(4):
            producer.produce("orders", b"%d" % partition, partition=partition)
        producer.commit_transaction(TIMEOUT_S)
        assert set(values_of(admins_file(data), 4)) == {b"0", b"1", b"2", b"3"}


def test_a_secure_cluster_refuses_settings_that_it_makes_itself(tmp_path: Path) -> None:
    words = ("cluster", "up", "--secure", "--data-dir", str(tmp_path / "data"), "--set", "super.users=User:bob")
    done = subprocess.run([*CORDWOOD, *words], env=clean_environment(), capture_output=True, text=True, timeout=60)
    assert done.returncode == 2
    assert "--secure makes super.users itself" in done.stderr
    assert not (tmp_path / "data").exists()
