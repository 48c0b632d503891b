"""Several brokers in this process are one cluster: replicas, leaders that die and come back, also without a disk."""

import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from tests.deadline import eventually

from cordwood.embedded import Broker, BrokerStopped, Cluster
from cordwood.model.errors import ErrorCode, ProtocolError
from cordwood.model.settings.setting import InvalidSetting


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster(nodes=3) as started:
        yield started


def new_topic() -> str:
    return f"orders-{uuid.uuid4().hex[:8]}"


def write(cluster: Cluster, topic: str, values: list[str]) -> None:
    failures: list[KafkaError] = []

    def delivered(error: KafkaError | None, message: Message) -> None:
        if error is not None:
            failures.append(error)

    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "enable.idempotence": True})
    for value in values:
        producer.produce(topic, value=value, on_delivery=delivered)
    assert producer.flush(60) == 0
    assert failures == []


def read(cluster: Cluster, topic: str, count: int) -> list[str]:
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap_servers, "group.id": "anyone"})
    consumer.assign([TopicPartition(topic, 0, 0)])
    values: list[str] = []

    def enough() -> bool:
        messages = consumer.consume(1000, timeout=0.2)
        values.extend((each.value() or b"").decode() for each in messages if each.error() is None)
        return len(values) >= count

    try:
        eventually(enough, what=f"{count} records")
    finally:
        consumer.close()
    return values


def in_sync(cluster: Cluster, topic: str) -> list[int]:
    partition = AdminClient({"bootstrap.servers": cluster.bootstrap_servers}).list_topics(topic, timeout=30)
    return sorted(partition.topics[topic].partitions[0].isrs)


def test_a_topic_has_three_replicas_by_default(cluster: Cluster) -> None:
    topic = new_topic()
    write(cluster, topic, ["placed"])
    assert sorted(cluster.brokers) == [1, 2, 3]
    assert len(cluster.bootstrap_servers.split(",")) == 3
    eventually(lambda: in_sync(cluster, topic), to_be=[1, 2, 3], what="three replicas in sync")


def test_records_survive_a_leader_that_is_killed_and_the_leader_comes_back(cluster: Cluster) -> None:
    topic = new_topic()
    first, second = ([f"{letter}{number}" for number in range(100)] for letter in "ab")
    write(cluster, topic, first)
    leader = cluster.leader(topic)
    leader.kill()
    write(cluster, topic, second)
    eventually(lambda: cluster.leader(topic) is not leader, what="another leader")
    leader.start()
    eventually(lambda: in_sync(cluster, topic), to_be=[1, 2, 3], what="three replicas in sync")
    assert read(cluster, topic, 200) == first + second


def test_the_leader_is_told_by_the_broker_with_the_newest_metadata(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = new_topic()
    write(cluster, topic, ["placed"])
    leader = cluster.leader(topic)
    for lags_behind in cluster.brokers.values():
        with monkeypatch.context() as patch:
            patch.setattr(lags_behind.log, "leader_at_revision", lambda topic, partition: (1, None))
            assert cluster.leader(topic) is leader


def test_a_leader_that_is_stopped_hands_over(cluster: Cluster) -> None:
    topic = new_topic()
    write(cluster, topic, ["placed"])
    eventually(lambda: in_sync(cluster, topic), to_be=[1, 2, 3], what="three replicas in sync")
    leader = cluster.leader(topic)
    leader.stop()
    eventually(lambda: cluster.leader(topic) is not leader, what="another leader")
    write(cluster, topic, ["paid"])
    assert read(cluster, topic, 2) == ["placed", "paid"]
    leader.start()
    eventually(lambda: in_sync(cluster, topic), to_be=[1, 2, 3], what="three replicas in sync")


def test_the_log_of_a_broker_that_does_not_lead_refuses(cluster: Cluster) -> None:
    topic = new_topic()
    write(cluster, topic, ["placed"])
    eventually(lambda: in_sync(cluster, topic), to_be=[1, 2, 3], what="three replicas in sync")
    leader = cluster.leader(topic)
    other = next(broker for broker in cluster.brokers.values() if broker is not leader)
    with pytest.raises(ProtocolError) as refused:
        other.log.append(topic, None, "paid")
    assert refused.value.code is ErrorCode.NOT_LEADER_OR_FOLLOWER
    with pytest.raises(ProtocolError):
        cluster.leader("no-such-topic")


def test_a_cluster_that_was_stopped_goes_on_with_its_records(tmp_path: Path) -> None:
    for cluster in (Cluster(nodes=2), Cluster(nodes=2, data_dir=tmp_path / "data")):
        with pytest.raises(BrokerStopped):
            _ = cluster.bootstrap_servers
        with cluster:
            write(cluster, "orders", ["placed"])
        with cluster:
            write(cluster, "orders", ["paid"])
            assert read(cluster, "orders", 2) == ["placed", "paid"]


def test_a_broker_with_the_settings_of_a_cluster_joins_it() -> None:
    with Cluster(nodes=1) as cluster:
        settings: dict[str, str | int] = {"cluster.name": "embedded", "cluster.store": cluster.store, "node.id": 2}
        with Broker(settings=settings) as joined:
            admin = AdminClient({"bootstrap.servers": joined.bootstrap_servers})
            eventually(lambda: sorted(admin.list_topics(timeout=30).brokers), to_be=[1, 2], what="both brokers")


def test_settings_of_the_cluster_itself_are_refused() -> None:
    with pytest.raises(InvalidSetting, match=r"node\.id"):
        Cluster(settings={"node.id": 7})
    with pytest.raises(ValueError, match="at least one broker"):
        Cluster(nodes=0)
