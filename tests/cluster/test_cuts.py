"""Real brokers cut real logs, in threads, beside checkpoints and other partitions: what only a dead leader had goes."""

from pathlib import Path

import pytest
from confluent_kafka import KafkaError, Message, Producer
from confluent_kafka.admin import AdminClient, NewTopic
from tests.cluster.local_cluster import LocalCluster
from tests.cluster.test_leader_killed import FAILOVER_WITHIN_S, all_in_sync
from tests.deadline import eventually

TOPIC = "cut"
PARTITIONS = 24
pytestmark = pytest.mark.timeout(400)


def produce(servers: str, partitions: list[int], name: str, count: int, acks: str) -> None:
    """A batch for each value, so that logs get several segments. All are acknowledged."""
    failed: list[KafkaError] = []

    def delivered(error: KafkaError | None, message: Message) -> None:
        if error is not None:
            failed.append(error)

    settings = {"bootstrap.servers": servers, "acks": acks, "linger.ms": 0, "batch.num.messages": 1}
    producer = Producer({**settings, "message.timeout.ms": int(FAILOVER_WITHIN_S * 1000)})
    for number in range(count):
        for partition in partitions:
            producer.produce(
                TOPIC, value=f"{name} {number}".ljust(300, "."), partition=partition, on_delivery=delivered
            )
    assert producer.flush(FAILOVER_WITHIN_S) == 0
    assert failed == []


def led_by(servers: str) -> dict[int, list[int]]:
    """The partitions that each broker leads."""
    partitions = AdminClient({"bootstrap.servers": servers}).list_topics(TOPIC, timeout=30).topics[TOPIC].partitions
    led: dict[int, list[int]] = {}
    for index, partition in partitions.items():
        led.setdefault(partition.leader, []).append(index)
    return led


def content(cluster: LocalCluster, node_id: int, partition: int) -> bytes:
    directory = cluster.directory / f"node-{node_id}" / f"{TOPIC}-{partition}"
    return b"".join(path.read_bytes() for path in sorted(directory.glob("*.log")))


def test_logs_of_a_dead_leader_are_cut_side_by_side_when_it_comes_back(tmp_path: Path) -> None:
    options = ("--metadata", "supervisor", "--set", "log.flush.offset.checkpoint.interval.ms=50")
    with LocalCluster(tmp_path / "data", *options) as cluster:
        config = {"min.insync.replicas": "2", "segment.bytes": "2000"}
        new = NewTopic(TOPIC, num_partitions=PARTITIONS, replication_factor=3, config=config)
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
        admin.create_topics([new])[TOPIC].result(timeout=60)
        everywhere = list(range(PARTITIONS))
        produce(cluster.bootstrap, everywhere, "kept", 10, "all")
        leader, led = next(iter(sorted(led_by(cluster.bootstrap).items())))
        followers = [node_id for node_id in cluster.pids if node_id != leader]
        own = cluster.bootstrap.split(",")[leader - 1]
        producer = Producer({"bootstrap.servers": own, "acks": "1", "linger.ms": 0, "batch.num.messages": 1})
        producer.list_topics(TOPIC, timeout=30)
        for node_id in followers:
            cluster.freeze(node_id)
        try:
            for number in range(20):
                for partition in led:
                    producer.produce(TOPIC, value=f"lost {number}".ljust(300, "."), partition=partition)
            producer.flush(2)
            cluster.kill(leader)
        finally:
            for node_id in followers:
                cluster.thaw(node_id)
        lost = {partition: content(cluster, leader, partition).count(b"lost") for partition in led}
        assert all(lost.values()), f"the leader had nothing of its own: {lost}"
        others = ",".join(cluster.bootstrap.split(",")[node_id - 1] for node_id in followers)
        eventually(
            lambda: leader not in led_by(others) and -1 not in led_by(others),
            what="other leaders",
        )
        produce(others, everywhere, "next", 3, "all")
        cluster.restart(leader)
        produce(others, everywhere, "later", 10, "all")
        eventually(lambda: all_in_sync(cluster), what="all replicas in sync")
        eventually(
            lambda: all(
                len({content(cluster, node_id, index) for node_id in cluster.pids}) == 1 for index in everywhere
            ),
            what="the same bytes on all replicas",
        )
        said = (cluster.directory / f"node-{leader}.log").read_text()
        for partition in led:
            assert f" {TOPIC}-{partition}: is cut at offset" in said
            kept = content(cluster, leader, partition)
            # A follower may have got the first of them before it was frozen: then they are not lost.
            assert kept.count(b"lost") < lost[partition]
            assert [kept.count(name) for name in (b"kept", b"next", b"later")] == [10, 3, 10]
        assert "are damaged" not in said
