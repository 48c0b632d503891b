"""Brokers of a real cluster that log in at each other by SCRAM over TLS."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient, NewTopic
from tests.broker.test_tls_between_brokers import acknowledged, address, all_take_part
from tests.broker_process import BrokerProcess, free_port
from tests.certificates import TlsFiles, name, tls_files
from tests.deadline import eventually
from tests.etcd.members import EtcdCluster
from tests.raw_client import RawClient

from cordwood.model.credentials import ScramMechanism
from cordwood.model.errors import ErrorCode
from cordwood.model.identifiers import TopicId
from cordwood.model.jaas import jaas
from cordwood.security.scram_client import ScramClient, client_keys
from cordwood.wire.apis import ApiKey

StartEtcd = Callable[..., AbstractContextManager[EtcdCluster]]
CORDWOOD = (sys.executable, "-m", "cordwood.cli")
MECHANISM = ScramMechanism.SHA_512


def cordwood(*words: str, password: str = "") -> str:
    """The output of a command that succeeds."""
    environment = {"CORDWOOD_USER_PASSWORD": password} if password else {}
    done = subprocess.run([*CORDWOOD, *words], env=environment, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout


class Brokers:
    """Brokers with a listener for clients in plain text, and one for themselves with log-ins."""

    def __init__(self, etcd: EtcdCluster, files: TlsFiles, directory: Path) -> None:
        self._store = f"etcd://{','.join(etcd.endpoints)}"
        self._files, self._directory = files, directory
        self.add_user("broker", "of the brokers")

    def add_user(self, user: str, password: str) -> None:
        cordwood("user", "add", user, "--store", self._store, "--cluster", "woods", password=password)

    def broker(
        self, node_id: int, password: str = "of the brokers", protocol: str = "SASL_SSL", **settings: str
    ) -> BrokerProcess:
        keystore = self._directory / f"broker-{node_id}.pem"
        keystore.write_bytes(self._files.authority.issue(name(CN=f"broker-{node_id}")).keystore())
        config = self._directory / f"broker-{node_id}.toml"
        login = jaas("broker", password)
        config.write_text(f"[listener.name.inside.scram-sha-512.sasl.jaas]\nconfig = '{login}'\n")
        every = {
            "cluster.name": "woods",
            "cluster.store": self._store,
            "node.id": str(node_id),
            "listeners": f"CLIENTS://127.0.0.1:{free_port()},INSIDE://127.0.0.1:{free_port()}",
            "listener.security.protocol.map": f"CLIENTS:PLAINTEXT,INSIDE:{protocol}",
            "inter.broker.listener.name": "INSIDE",
            "ssl.keystore.location": str(keystore),
            "ssl.truststore.location": str(self._files.truststore),
            **{text.replace("_", "."): value for text, value in settings.items()},
        }
        data = self._directory / f"data-{node_id}"
        return BrokerProcess(data, settings=every, options=("--config", str(config)))


@pytest.fixture
def brokers(start_etcd: StartEtcd, tmp_path: Path) -> Iterator[Brokers]:
    with start_etcd(1) as etcd:
        yield Brokers(etcd, tls_files(tmp_path), tmp_path)


def inside(broker: BrokerProcess) -> str:
    """The address of the broker's listener for other brokers."""
    return broker.settings["listeners"].rpartition("://")[2]


def status(broker: BrokerProcess) -> dict[int, dict[str, Any]]:
    told = json.loads(cordwood("cluster", "status", "--json", "-b", address(broker)))
    return {node["id"]: node for node in told["nodes"]}


def log_in(broker: BrokerProcess, user: str, password: str) -> RawClient | int:
    """A connection to the brokers' listener, in plain text, that has logged in; or the error code of the refusal."""
    client = RawClient(inside(broker))
    assert client.send(ApiKey.SASL_HANDSHAKE, 1, mechanism=MECHANISM.sasl_name).error_code == 0
    scram = ScramClient(MECHANISM, user, "nonce")
    challenge = client.send(ApiKey.SASL_AUTHENTICATE, 2, auth_bytes=scram.first())
    assert challenge.error_code == 0
    keys = client_keys(MECHANISM, password, scram.challenged(challenge.auth_bytes))
    last = client.send(ApiKey.SASL_AUTHENTICATE, 2, auth_bytes=scram.final(keys))
    if last.error_code:
        client.close()
        return last.error_code
    scram.check(last.auth_bytes)
    return client


def test_followers_log_in_again_and_again_and_a_killed_leader_is_replaced(brokers: Brokers) -> None:
    with ExitStack() as stack:
        running = {
            node_id: stack.enter_context(brokers.broker(node_id, connections_max_reauth_ms="1000"))
            for node_id in (1, 2, 3)
        }
        eventually(lambda: all_take_part(*running.values()), what="the end of the fences")
        admin = AdminClient({"bootstrap.servers": address(running[1])})
        settings = {"min.insync.replicas": "3"}
        admin.create_topics([NewTopic("orders", 1, 3, config=settings)])["orders"].result(60)
        assert acknowledged(address(running[1]), "orders", 10) == [None] * 10
        leader = admin.list_topics("orders").topics["orders"].partitions[0].leader

        def log_ins() -> int:
            """The SASL messages that the leader got: sessions of brokers last a second."""
            told = RawClient(address(running[leader]))
            facts = told.send(ApiKey.DESCRIBE_NODE, 0, most_clients=100)
            told.close()
            assert not facts.unreached
            mine = [each for each in facts.clients if each.client_id.startswith("cordwood-broker-")]
            # Two peers have up to five connections each: a new log-in needs no new connection.
            assert sum(each.accepted for each in mine) <= 10
            return sum(each.requests for each in mine)

        before = log_ins()
        eventually(lambda: log_ins() > before + 30, what="fetches beyond the end of several sessions")
        assert acknowledged(address(running[1]), "orders", 10) == [None] * 10
        assert not any("no log-in" in broker.output() for broker in running.values())
        running[leader].kill()
        other = next(broker for node_id, broker in running.items() if node_id != leader)
        admin = AdminClient({"bootstrap.servers": address(other)})

        def replaced() -> bool:
            return admin.list_topics("orders", timeout=5).topics["orders"].partitions[0].leader not in (leader, -1)

        eventually(replaced, what="another leader")


@pytest.mark.stories
def test_a_broker_with_a_wrong_password_is_named_and_not_taken_for_dead(brokers: Brokers) -> None:
    with brokers.broker(1) as first, brokers.broker(2, "a guess") as second:
        eventually(lambda: all_take_part(first, second), what="the end of the fences")
        said = "no log-in at broker 1 at 127.0.0.1:"
        eventually(lambda: said in second.output(), what="the line about broker 1")
        assert "the log-in of User:broker by SCRAM-SHA-512 was refused" in second.output()
        assert second.output().count(said) == 1
        nodes = status(first)
        assert {node_id: node["state"] for node_id, node in nodes.items()} == {1: "serves", 2: "serves"}
        assert nodes[1]["unreached"] == []
        assert nodes[2]["unreached"][0].startswith(said)
        assert "Broker 2 says: no log-in at broker 1" in cordwood("cluster", "status", "-b", address(first))
        # The other direction works: broker 1 knows the password of the user.
        assert "a guess" not in second.output()


@pytest.mark.stories
def test_a_stranger_is_no_broker_at_the_listener_of_brokers(brokers: Brokers) -> None:
    brokers.add_user("alice", "of alice")
    with (
        brokers.broker(1, protocol="SASL_PLAINTEXT") as first,
        brokers.broker(2, protocol="SASL_PLAINTEXT") as second,
    ):
        eventually(lambda: all_take_part(first, second), what="the end of the fences")
        admin = AdminClient({"bootstrap.servers": address(first)})
        admin.create_topics([NewTopic("orders", 1, replica_assignment=[[1, 2]])])["orders"].result(60)
        assert acknowledged(address(first), "orders", 1) == [None]
        assert log_in(first, "broker", "a guess") == ErrorCode.SASL_AUTHENTICATION_FAILED
        assert log_in(first, "nobody", "a guess") == ErrorCode.SASL_AUTHENTICATION_FAILED
        silent = RawClient(inside(first))
        with pytest.raises((ConnectionError, AssertionError)):
            fetch_as_follower(silent, TopicId(int=0))
        alice = log_in(first, "alice", "of alice")
        assert isinstance(alice, RawClient)
        (topic,) = alice.send(ApiKey.METADATA, 12, topics=[{"name": "orders"}]).topics
        assert topic.topic_id is not None
        assert fetch_as_follower(alice, topic.topic_id) == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        assert ask_for_batches(alice, topic.topic_id) == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        assert write_marker(alice) == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        with pytest.raises((ConnectionError, AssertionError)):
            alice.send(ApiKey.BROKER_REGISTRATION, 0, broker_id=3, listeners=[], features=[])
        own = log_in(first, "broker", "of the brokers")
        assert isinstance(own, RawClient)
        # An operator with the brokers' own password may abort a hanging transaction; it is no follower yet.
        assert write_marker(own) != ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        assert fetch_as_follower(own, topic.topic_id) == ErrorCode.CLUSTER_AUTHORIZATION_FAILED


def fetch_as_follower(client: RawClient, topic_id: TopicId) -> int:
    partition = {"partition": 0, "current_leader_epoch": -1, "fetch_offset": 1, "partition_max_bytes": 1 << 20}
    answer = client.send(
        ApiKey.FETCH,
        16,
        replica_state={"replica_id": 2, "replica_epoch": 1},
        max_wait_ms=0,
        min_bytes=1,
        max_bytes=1 << 20,
        session_epoch=-1,
        topics=[{"topic_id": topic_id, "partitions": [partition]}],
    )
    return answer.error_code


def ask_for_batches(client: RawClient, topic_id: TopicId) -> int:
    return client.send(ApiKey.SOUND_BATCHES, 0, broker_id=2, broker_epoch=1, topic_id=topic_id, partition=0).error_code


def write_marker(client: RawClient) -> int:
    topics = [{"name": "orders", "partition_indexes": [0]}]
    marker = {"producer_id": 7, "producer_epoch": 0, "transaction_result": False, "topics": topics}
    (told,) = client.send(ApiKey.WRITE_TXN_MARKERS, 1, markers=[{**marker, "coordinator_epoch": 0}]).markers
    return told.topics[0].partitions[0].error_code
