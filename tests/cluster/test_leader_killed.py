"""Records that were acknowledged by all survive the leader: kill -9, another leads, the broker comes back."""

import json
import subprocess
import time
import uuid
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, Message, Producer
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic
from tests import pausing
from tests.cluster.local_cluster import CORDWOOD, LocalCluster, clean_environment
from tests.deadline import eventually
from tests.etcd.finding import Etcd

FAILOVER_WITHIN_S = 60.0
pytestmark = pytest.mark.timeout(300)


def create(cluster: LocalCluster, partitions: int, replicas: int) -> str:
    name = f"orders-{uuid.uuid4().hex[:8]}"
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    config = {"min.insync.replicas": str(min(replicas, 2))}
    new = NewTopic(name, num_partitions=partitions, replication_factor=replicas, config=config)
    admin.create_topics([new], operation_timeout=30)[name].result(timeout=60)
    return name


def grow(cluster: LocalCluster, topic: str, partitions: int) -> None:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    admin.create_partitions([NewPartitions(topic, partitions)])[topic].result(timeout=60)


def status(cluster: LocalCluster) -> dict[str, Any]:
    """As a script sees it, from any broker that answers; one that has just ended does not."""

    def told() -> Any:
        ended = subprocess.run(
            [*CORDWOOD, "cluster", "status", "--bootstrap-server", cluster.bootstrap, "--json"],
            env=clean_environment(),
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        return json.loads(ended.stdout) if ended.returncode == 0 else None

    found: dict[str, Any] = eventually(told, what="the status of the cluster")
    return found


def leader_of(cluster: LocalCluster, topic: str, servers: str = "") -> int:
    metadata = AdminClient({"bootstrap.servers": servers or cluster.bootstrap}).list_topics(topic, timeout=30)
    return int(metadata.topics[topic].partitions[0].leader)


def produce(cluster: LocalCluster, topic: str, values: list[str], servers: str = "") -> None:
    """All values, acknowledged by all in-sync replicas."""
    failed: list[KafkaError] = []

    def delivered(error: KafkaError | None, message: Message) -> None:
        if error is not None:
            failed.append(error)

    producer = Producer(
        {
            "bootstrap.servers": servers or cluster.bootstrap,
            "acks": "all",
            "enable.idempotence": True,
            "message.timeout.ms": int(FAILOVER_WITHIN_S * 1000),
        }
    )
    for value in values:
        producer.produce(topic, value=value, partition=0, on_delivery=delivered)
    assert producer.flush(FAILOVER_WITHIN_S) == 0
    assert failed == []


def consume(cluster: LocalCluster, topic: str, count: int) -> list[str]:
    consumer = Consumer(
        {
            "bootstrap.servers": cluster.bootstrap,
            "group.id": f"readers-{uuid.uuid4().hex[:8]}",
            "auto.offset.reset": "earliest",
        }
    )
    consumer.subscribe([topic])
    values: list[str] = []

    def enough() -> bool:
        for message in consumer.consume(1000, timeout=0.5):
            if message.error() is None:
                values.append((message.value() or b"").decode())
        return len(values) >= count

    try:
        eventually(enough, what=f"{count} records")
    finally:
        consumer.close()
    return values


def all_in_sync(cluster: LocalCluster) -> bool:
    told = status(cluster)
    return not told["troubles"] and len(told["nodes"]) == 3 and not any(node["fenced"] for node in told["nodes"])


def play(cluster: LocalCluster) -> None:
    topic = create(cluster, 1, 3)
    first, second, third = ([f"{letter}{number}" for number in range(200)] for letter in "abc")
    produce(cluster, topic, first)
    leader = leader_of(cluster, topic)
    cluster.kill(leader)
    produce(cluster, topic, second)
    eventually(lambda: leader_of(cluster, topic) not in (leader, -1), what="another leader")

    def missing_is_explained() -> bool:
        troubles = [trouble for trouble in status(cluster)["troubles"] if trouble["topic"] == topic]
        return bool(troubles) and troubles[0]["missing"] == [{"id": leader, "reason": "its node is gone", "lag": None}]

    eventually(missing_is_explained, what="the reason for the missing replica")
    (gone,) = status(cluster)["gone"]
    assert (gone["id"], gone["port"]) == (leader, cluster.port(leader)), "the dead broker's address is known"
    late = create(cluster, 1, 3)
    grow(cluster, late, 2)
    produce(cluster, late, first)
    cluster.restart(leader)
    eventually(lambda: all_in_sync(cluster), what="all replicas in sync")
    assert consume(cluster, late, 200) == first
    produce(cluster, topic, third)
    assert consume(cluster, topic, 600) == first + second + third


@pytest.mark.landing
def test_one_replica_each_on_three_brokers_is_written_and_read(tmp_path: Path) -> None:
    with LocalCluster(tmp_path / "data", "--metadata", "supervisor") as cluster:
        topic = create(cluster, 6, 1)
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap})

        def leaders() -> set[int]:
            found = admin.list_topics(timeout=30).topics.get(topic)  # a broker may not have heard of it yet
            return set() if found is None else {partition.leader for partition in found.partitions.values()}

        eventually(leaders, to_be={1, 2, 3}, what="leaders on all brokers")
        values = [str(number) for number in range(500)]
        produce(cluster, topic, values)
        assert consume(cluster, topic, 500) == values
        assert cluster.stop() == 0


@pytest.mark.landing
def test_records_survive_the_death_of_their_leader(tmp_path: Path) -> None:
    with LocalCluster(tmp_path / "data", "--metadata", "supervisor") as cluster:
        play(cluster)


def test_a_leader_that_hangs_is_replaced_when_its_lease_ends_and_follows_when_it_goes_on(tmp_path: Path) -> None:
    with LocalCluster(tmp_path / "data", "--metadata", "supervisor") as cluster:
        topic = create(cluster, 1, 3)
        first, second = ([f"{letter}{number}" for number in range(200)] for letter in "ab")
        produce(cluster, topic, first)
        leader = leader_of(cluster, topic)
        cluster.freeze(leader)
        try:
            others = ",".join(
                server for server in cluster.bootstrap.split(",") if not server.endswith(f":{cluster.port(leader)}")
            )
            eventually(lambda: leader_of(cluster, topic, others) not in (leader, -1), what="another leader")
            produce(cluster, topic, second, others)
        finally:
            cluster.thaw(leader)
        eventually(lambda: all_in_sync(cluster), what="all replicas in sync")
        assert consume(cluster, topic, 400) == first + second


def test_a_whole_cluster_that_was_stopped_or_killed_goes_on_where_it_was(tmp_path: Path) -> None:
    first, second, third = ([f"{letter}{number}" for number in range(200)] for letter in "abc")
    with LocalCluster(tmp_path / "data", "--metadata", "supervisor") as cluster:
        topic = create(cluster, 1, 3)
        produce(cluster, topic, first)
        assert cluster.stop() == 0
    with LocalCluster(tmp_path / "data", "--metadata", "supervisor") as cluster:
        produce(cluster, topic, second)
        for node_id in cluster.pids:
            cluster.kill(node_id)
        cluster.supervisor.kill()
    with LocalCluster(tmp_path / "data", "--metadata", "supervisor") as cluster:
        produce(cluster, topic, third)
        assert consume(cluster, topic, 600) == first + second + third
        eventually(lambda: all_in_sync(cluster), what="all replicas in sync")


def test_leaders_serve_on_while_the_metadata_store_hangs(tmp_path: Path) -> None:
    """Followers that fetch vouch for their leader: the store is not needed to write and read."""
    with LocalCluster(tmp_path / "data", "--metadata", "supervisor") as cluster:
        topic = create(cluster, 1, 3)
        producer = Producer({"bootstrap.servers": cluster.bootstrap, "acks": "all", "message.timeout.ms": 60_000})
        written: list[str] = []
        refused: list[KafkaError] = []

        def delivered(error: KafkaError | None, message: Message) -> None:
            if error is not None:
                refused.append(error)
            else:
                written.append((message.value() or b"").decode())

        def write(number: int) -> None:
            producer.produce(topic, value=str(number), partition=0, on_delivery=delivered)
            assert producer.flush(60) == 0

        write(0)
        eventually(lambda: all_in_sync(cluster), what="all replicas in sync")
        pausing.pause(cluster.supervisor.pid)
        try:
            # Three times the lease: without the store the authority of the lease is long over.
            until_s = time.monotonic() + 9
            number = 1
            while time.monotonic() < until_s:
                write(number)
                number += 1
        finally:
            pausing.resume(cluster.supervisor.pid)
        assert refused == []
        eventually(lambda: all_in_sync(cluster), what="all replicas in sync")
        write(number)
        assert consume(cluster, topic, len(written)) == written
        assert len(written) == number + 1


def test_records_survive_the_death_of_their_leader_with_metadata_in_etcd(
    tmp_path: Path, etcd: Etcd, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(Path(etcd.path).parent), prepend=":")
    with LocalCluster(tmp_path / "data", "--metadata", "etcd") as cluster:
        play(cluster)
