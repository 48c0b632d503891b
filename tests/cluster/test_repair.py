"""Three real brokers, and bytes that rot in a closed segment: the replica gets them back from another one."""

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient, NewTopic
from tests.cluster.local_cluster import CORDWOOD, LocalCluster, clean_environment
from tests.cluster.test_leader_killed import all_in_sync, consume, leader_of, produce
from tests.deadline import eventually

OPTIONS = (
    "--metadata",
    "supervisor",
    "--set",
    "log.scrub.interval.ms=1",
    "--set",
    "log.flush.offset.checkpoint.interval.ms=1000",
)
pytestmark = pytest.mark.timeout(500)


def create(cluster: LocalCluster, name: str, segment_bytes: int) -> None:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    config = {"min.insync.replicas": "2", "segment.bytes": str(segment_bytes)}
    new = NewTopic(name, num_partitions=1, replication_factor=3, config=config)
    admin.create_topics([new], operation_timeout=30)[name].result(timeout=60)


def directory(cluster: LocalCluster, node_id: int, topic: str) -> Path:
    return cluster.directory / f"node-{node_id}" / f"{topic}-0"


def settled(cluster: LocalCluster, topic: str, end_offset: int) -> None:
    """Waits until the recovery points of all replicas are at the log's end: only damage below them is repaired."""

    def recovery_point(node_id: int) -> bool:
        text = (cluster.directory / f"node-{node_id}" / "recovery-point-offset-checkpoint").read_text()
        return f"{topic} 0 {end_offset}" in text.splitlines()

    eventually(lambda: all(map(recovery_point, cluster.pids)), what="a checkpoint on each broker")


def content(cluster: LocalCluster, node_id: int, topic: str) -> bytes:
    """All batches of a replica, as they are in its files."""
    return b"".join(path.read_bytes() for path in sorted(directory(cluster, node_id, topic).glob("*.log")))


def rot(cluster: LocalCluster, node_id: int, topic: str, place: int) -> None:
    """Flips bytes in the middle of a closed segment."""
    path = sorted(directory(cluster, node_id, topic).glob("*.log"))[place]
    with path.open("r+b") as file:
        middle = path.stat().st_size // 2
        file.seek(middle)
        before = file.read(3)
        file.seek(middle)
        file.write(bytes(byte ^ 0xFF for byte in before))


def described(cluster: LocalCluster, topic: str) -> dict[str, Any]:
    ended = subprocess.run(
        [*CORDWOOD, "topic", "describe", topic, "--bootstrap-server", cluster.bootstrap, "--json"],
        env=clean_environment(),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    [told] = json.loads(ended.stdout)
    assert isinstance(told, dict)
    return told


def test_a_follower_and_the_leader_get_back_what_rots_on_their_disks(tmp_path: Path) -> None:
    topic = "rotting"
    values = [f"{number:05d}".ljust(400, ".") for number in range(2000)]
    with LocalCluster(tmp_path / "data", *OPTIONS) as cluster:
        create(cluster, topic, 100_000)
        for first in range(0, len(values), 100):
            produce(cluster, topic, values[first : first + 100])
        settled(cluster, topic, len(values))
        leader = leader_of(cluster, topic)
        follower = next(node_id for node_id in cluster.pids if node_id != leader)
        sound = content(cluster, leader, topic)
        assert all(content(cluster, node_id, topic) == sound for node_id in cluster.pids)
        rot(cluster, follower, topic, 1)
        rot(cluster, leader, topic, 2)
        assert content(cluster, follower, topic) != sound != content(cluster, leader, topic)
        eventually(
            lambda: all(content(cluster, node_id, topic) == sound for node_id in cluster.pids), what="the repairs"
        )
        eventually(
            lambda: len(described(cluster, topic)["repairs"]),
            to_be=2,
            what="the word of it",
        )
        told = described(cluster, topic)
        assert told["damage"] == []
        repairs = {repair["broker"]: repair["from_brokers"] for repair in told["repairs"]}
        assert repairs.keys() == {follower, leader}
        assert repairs[follower] == [leader]
        assert leader not in repairs[leader]
        assert "are repaired from broker" in (cluster.directory / f"node-{follower}.log").read_text()
        assert consume(cluster, topic, len(values)) == values
        cluster.kill(leader)
        others = ",".join(
            server for server in cluster.bootstrap.split(",") if not server.endswith(f":{cluster.port(leader)}")
        )
        eventually(
            lambda: leader_of(cluster, topic, others) not in (leader, -1),
            what="another leader",
        )
        assert consume(cluster, topic, len(values)) == values


def test_a_broker_that_is_killed_in_the_middle_of_a_repair_repairs_after_its_start(tmp_path: Path) -> None:
    topic = "rotting"
    values = [f"{number:05d}".ljust(4000, ".") for number in range(24_000)]
    with LocalCluster(tmp_path / "data", *OPTIONS, "--set", "log.scrub.bytes.per.second=100000000") as cluster:
        create(cluster, topic, 32 * 1024 * 1024)
        produce(cluster, topic, values)
        settled(cluster, topic, len(values))
        leader = leader_of(cluster, topic)
        follower = next(node_id for node_id in cluster.pids if node_id != leader)
        sound = content(cluster, leader, topic)
        rot(cluster, follower, topic, 1)
        place = directory(cluster, follower, topic)
        eventually(lambda: bool(list(place.glob("*.log.cleaned"))), what="a repair that has begun")
        cluster.kill(follower)
        assert list(place.glob("*.log.cleaned")), "the broker was killed in the middle of the repair"
        assert content(cluster, follower, topic) != sound
        cluster.restart(follower)
        eventually(lambda: content(cluster, follower, topic) == sound, what="the repair")
        eventually(lambda: all_in_sync(cluster), what="all replicas in sync")
        assert not list(place.glob("*.cleaned"))
        assert consume(cluster, topic, len(values)) == values
