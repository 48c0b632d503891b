"""A real broker whose metadata is in a real etcd."""

from base64 import b64encode
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic, ResourceType
from tests import pausing
from tests.broker_process import BrokerProcess
from tests.deadline import eventually
from tests.etcd.members import Certificate, EtcdCluster

StartEtcd = Callable[..., AbstractContextManager[EtcdCluster]]


def settings_of(etcd: EtcdCluster, node_id: int = 1) -> dict[str, str]:
    return {
        "cluster.name": "woods",
        "cluster.store": f"etcd://{','.join(etcd.endpoints)}",
        "broker.lease.ms": "10000",
        "node.id": str(node_id),
    }


@pytest.mark.stories
def test_a_broker_goes_on_when_the_leader_of_etcd_dies(start_etcd: StartEtcd, tmp_path: Path) -> None:
    with start_etcd(3) as etcd, BrokerProcess(tmp_path / "data", settings=settings_of(etcd)) as broker:
        eventually(lambda: "takes part in epoch" in broker.output(), what="the end of the fence")
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        producer = Producer({"bootstrap.servers": broker.bootstrap})
        errors: list[Any] = []
        for topic in ("before", "after"):
            admin.create_topics([NewTopic(topic, 3, 1)])[topic].result(60)
            for number in range(10):
                producer.produce(topic, str(number), on_delivery=lambda error, message: errors.append(error))
            assert producer.flush(60) == 0
            if topic == "before":
                etcd.leader().kill()
        assert errors == [None] * 20
        assert broker.stop() == 0, broker.output()


@pytest.mark.stories
def test_a_broker_logs_in_over_tls_as_a_user_of_its_own_keys_and_tells_nobody_the_password(
    start_etcd: StartEtcd, tmp_path: Path, certificate: Certificate
) -> None:
    secret = "o12-sesame"
    password = tmp_path / "password"
    password.write_text(f"{secret}\n")
    file, key = map(str, certificate)
    options = ("--unsafe-no-fsync", "--auth-token-ttl=1")
    with start_etcd(options=options, certificate=certificate) as etcd:
        (member,) = etcd.members
        keys = {
            name: b64encode(text).decode()
            for name, text in (("key", b"/cordwood/woods/"), ("range_end", b"/cordwood/woods0"))
        }
        for path, body in (
            ("user/add", {"name": "root", "password": "root"}),
            ("user/grant", {"user": "root", "role": "root"}),
            ("user/add", {"name": "broker", "password": secret}),
            ("role/add", {"name": "woods"}),
            ("role/grant", {"name": "woods", "perm": {"permType": "READWRITE", **keys}}),
            ("user/grant", {"user": "broker", "role": "woods"}),
            ("enable", {}),
        ):
            member.post(f"/v3/auth/{path}", body)
        settings = settings_of(etcd) | {
            "cluster.etcd.allow.old": "true",
            "cluster.etcd.user": "broker",
            "cluster.etcd.password.file": str(password),
            "cluster.etcd.ca.file": file,
            "cluster.etcd.certificate.file": file,
            "cluster.etcd.key.file": key,
        }
        with BrokerProcess(tmp_path / "data", settings=settings) as broker:
            admin = AdminClient({"bootstrap.servers": broker.bootstrap})
            for topic in ("before", "after"):
                eventually(lambda: broker.output().count("takes part in epoch") >= 1, what="the end of the fence")
                admin.create_topics([NewTopic(topic, 1, 1)])[topic].result(60)
                if topic == "before":
                    # The connection ends, and with it the token: etcd forgets tokens when it restarts.
                    member.kill()
                    etcd.restart(member)
            resource = ConfigResource(ResourceType.BROKER, "1")
            described = admin.describe_configs([resource])[resource].result(60)
            assert described["cluster.etcd.user"].value == "broker"
            assert secret not in str({name: entry.value for name, entry in described.items()})
            assert secret not in broker.output()
            assert broker.stop() == 0, broker.output()
        refused = BrokerProcess(tmp_path / "data", settings={**settings, "cluster.etcd.password.file": ""})
        refused.launch()
        eventually(lambda: not refused.alive, what="the refusal")
        refused.says("the user 'broker' of etcd has no password")
        refused.end()


def test_a_broker_that_slept_through_a_compaction_catches_up(start_etcd: StartEtcd, tmp_path: Path) -> None:
    with start_etcd() as etcd:
        (member,) = etcd.members
        with (
            BrokerProcess(tmp_path / "one", settings=settings_of(etcd, 1)) as one,
            BrokerProcess(tmp_path / "two", settings=settings_of(etcd, 2)) as two,
        ):
            first, second = (AdminClient({"bootstrap.servers": each.bootstrap}) for each in (one, two))
            eventually(lambda: len(second.list_topics(timeout=10).brokers), to_be=2, what="both brokers")
            pausing.pause(two.pid)
            try:
                # The watch of the sleeping broker ends with its connection: its events would wait in the socket.
                member.kill()
                etcd.restart(member)
                first.create_topics([NewTopic("orders", 1, replica_assignment=[[1]])])["orders"].result(60)
                revision = member.post("/v3/kv/range", {"key": b64encode(b"none").decode()})["header"]["revision"]
                member.post("/v3/kv/compaction", {"revision": revision, "physical": True})
            finally:
                pausing.resume(two.pid)
            eventually(lambda: "orders" in second.list_topics(timeout=10).topics, what="the topic at the sleeper")
            eventually(lambda: len(second.list_topics(timeout=10).brokers), to_be=2, what="both brokers again")
            assert two.alive
            first.create_topics([NewTopic("later", 1, 2)])["later"].result(60)
            eventually(lambda: "later" in second.list_topics(timeout=10).topics, what="the later topic")
            assert two.stop() == 0, two.output()
