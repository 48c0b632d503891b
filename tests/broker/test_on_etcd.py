"""A real broker whose metadata is in a real etcd."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from tests.broker_process import BrokerProcess
from tests.deadline import eventually
from tests.etcd.members import EtcdCluster

StartEtcd = Callable[..., AbstractContextManager[EtcdCluster]]


def test_a_broker_goes_on_when_the_leader_of_etcd_dies(start_etcd: StartEtcd, tmp_path: Path) -> None:
    with start_etcd(3) as etcd:
        settings = {
            "cluster.name": "woods",
            "cluster.store": f"etcd://{','.join(etcd.endpoints)}",
            "broker.lease.ms": "10000",
            "node.id": "1",
        }
        with BrokerProcess(tmp_path / "data", settings=settings) as broker:
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
