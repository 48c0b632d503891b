"""Brokers of a real cluster that speak TLS among themselves, each with a certificate of its own."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from tests.broker_process import BrokerProcess, free_port
from tests.certificates import Authority, TlsFiles, name, tls_files
from tests.deadline import eventually
from tests.etcd.members import EtcdCluster

StartEtcd = Callable[..., AbstractContextManager[EtcdCluster]]


class Brokers:
    """Brokers with a listener for clients in plain text, and one for themselves with TLS."""

    def __init__(self, etcd: EtcdCluster, files: TlsFiles, directory: Path) -> None:
        self._etcd, self._files, self._directory = etcd, files, directory

    def broker(self, node_id: int, authority: Authority | None = None) -> BrokerProcess:
        keystore = self._directory / f"broker-{node_id}.pem"
        issued = (authority or self._files.authority).issue(name(CN=f"broker-{node_id}"))
        keystore.write_bytes(issued.keystore())
        truststore = self._directory / f"ca-{node_id}.pem"
        truststore.write_bytes((authority or self._files.authority).pem)
        settings = {
            "cluster.name": "woods",
            "cluster.store": f"etcd://{','.join(self._etcd.endpoints)}",
            "node.id": str(node_id),
            "listeners": f"CLIENTS://127.0.0.1:{free_port()},INSIDE://127.0.0.1:{free_port()}",
            "listener.security.protocol.map": "CLIENTS:PLAINTEXT,INSIDE:SSL",
            "inter.broker.listener.name": "INSIDE",
            "listener.name.inside.ssl.keystore.location": str(keystore),
            "listener.name.inside.ssl.truststore.location": str(truststore),
            "listener.name.inside.ssl.client.auth": "required",
        }
        return BrokerProcess(self._directory / f"data-{node_id}", settings=settings)


@pytest.fixture
def brokers(start_etcd: StartEtcd, tmp_path: Path) -> Iterator[Brokers]:
    with start_etcd(1) as etcd:
        yield Brokers(etcd, tls_files(tmp_path), tmp_path)


def all_take_part(*brokers: BrokerProcess) -> bool:
    """True if the fence of each broker is lifted, as their controller says."""
    said = "".join(broker.output() for broker in brokers)
    return all(f"broker {number} takes part in epoch" in said for number in range(1, len(brokers) + 1))


def address(broker: BrokerProcess) -> str:
    """The broker's listener for clients."""
    return broker.bootstrap.partition("://")[2]


def acknowledged(bootstrap: str, topic: str, count: int) -> list[object]:
    producer = Producer({"bootstrap.servers": bootstrap, "acks": "all", "message.timeout.ms": 30_000})
    errors: list[object] = []
    for number in range(count):
        producer.produce(topic, str(number), on_delivery=lambda error, message: errors.append(error))
    assert producer.flush(60) == 0
    return errors


def test_followers_fetch_over_tls_and_a_killed_leader_is_replaced(brokers: Brokers) -> None:
    with ExitStack() as stack:
        running = {node_id: stack.enter_context(brokers.broker(node_id)) for node_id in (1, 2, 3)}
        eventually(lambda: all_take_part(*running.values()), what="the end of the fences")
        admin = AdminClient({"bootstrap.servers": address(running[1])})
        settings = {"min.insync.replicas": "3"}
        admin.create_topics([NewTopic("orders", 1, 3, config=settings)])["orders"].result(60)
        assert acknowledged(address(running[1]), "orders", 10) == [None] * 10
        leader = admin.list_topics("orders").topics["orders"].partitions[0].leader
        running[leader].kill()
        other = next(broker for node_id, broker in running.items() if node_id != leader)
        admin = AdminClient({"bootstrap.servers": address(other)})

        def replaced() -> bool:
            return admin.list_topics("orders", timeout=5).topics["orders"].partitions[0].leader not in (leader, -1)

        eventually(replaced, what="another leader")


@pytest.mark.stories
def test_a_broker_whose_certificate_nobody_vouches_for_is_named_and_not_taken_for_dead(brokers: Brokers) -> None:
    stranger = Authority("another authority")
    with brokers.broker(1) as first, brokers.broker(2, stranger) as second:
        eventually(lambda: all_take_part(first, second), what="the end of the fences")
        eventually(lambda: "no TLS connection to broker 2 at" in first.output(), what="the line about broker 2")
        eventually(lambda: "certificate verify failed" in first.output(), what="its reason")
        admin = AdminClient({"bootstrap.servers": address(first)})
        assert set(admin.list_topics(timeout=10).brokers) == {1, 2}


@pytest.mark.stories
def test_a_running_cluster_goes_over_to_tls_one_broker_after_the_other(brokers: Brokers) -> None:
    with ExitStack() as stack:
        running = {node_id: brokers.broker(node_id) for node_id in (1, 2, 3)}
        for broker in running.values():
            broker.settings["inter.broker.listener.name"] = "CLIENTS"
            stack.enter_context(broker)
        eventually(lambda: all_take_part(*running.values()), what="the end of the fences")
        bootstrap = ",".join(map(address, running.values()))
        admin = AdminClient({"bootstrap.servers": bootstrap})
        settings = {"min.insync.replicas": "2"}
        admin.create_topics([NewTopic("orders", 3, 3, config=settings)])["orders"].result(60)

        def in_sync() -> bool:
            partitions = admin.list_topics("orders", timeout=10).topics["orders"].partitions.values()
            return len(partitions) == 3 and all(len(each.isrs) == 3 and each.leader > 0 for each in partitions)

        for broker in running.values():
            eventually(in_sync, what="all replicas in sync")
            assert acknowledged(bootstrap, "orders", 10) == [None] * 10
            assert broker.stop() == 0, broker.output()
            broker.settings["inter.broker.listener.name"] = "INSIDE"
            broker.start()
        eventually(in_sync, what="all replicas in sync over TLS")
        assert acknowledged(bootstrap, "orders", 10) == [None] * 10
