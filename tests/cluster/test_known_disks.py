"""Three real brokers whose disks lose something, or seem to: each knows what it had."""

import shutil
import struct
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from tests.cluster.local_cluster import LocalCluster
from tests.cluster.test_leader_killed import FAILOVER_WITHIN_S, all_in_sync, consume, produce
from tests.deadline import eventually

SUPERVISED = ("--metadata", "supervisor")
OFTEN = ("--set", "log.flush.offset.checkpoint.interval.ms=500", "--set", "log.cleaner.backoff.ms=200")
NEVER = ("--set", "log.flush.offset.checkpoint.interval.ms=3600000")
pytestmark = pytest.mark.timeout(200)


def create(cluster: LocalCluster, topic: str, **config: str) -> None:
    new = NewTopic(topic, 1, replica_assignment=[[1, 2, 3]], config={"min.insync.replicas": "1", **config})
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    admin.create_topics([new])[topic].result(60)


def write(cluster: LocalCluster, topic: str, count: int) -> None:
    """Writes records of one key, each in a batch of its own."""
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "acks": "all"})
    for number in range(count):
        producer.produce(topic, b"%d" % number, key=b"key")
        assert producer.flush(FAILOVER_WITHIN_S) == 0


def first_batch(cluster: LocalCluster, node_id: int, topic: str) -> int:
    """The offset of the first batch in the files of a replica; 0 if there is none."""
    for path in sorted((cluster.directory / f"node-{node_id}" / f"{topic}-0").glob("*.log")):
        if data := path.read_bytes()[:8]:
            return int(struct.unpack(">q", data)[0])
    return 0


def test_a_replica_that_was_filled_from_a_compacted_leader_is_sound_after_its_next_start(tmp_path: Path) -> None:
    topic = "latest"
    with LocalCluster(tmp_path / "data", *SUPERVISED, *OFTEN) as cluster:
        compacts = {"cleanup.policy": "compact", "segment.bytes": "1000", "min.cleanable.dirty.ratio": "0.01"}
        create(cluster, topic, **compacts)
        write(cluster, topic, 60)
        eventually(lambda: first_batch(cluster, 1, topic) > 0, what="a compaction")
        cluster.kill(3)
        shutil.rmtree(cluster.directory / "node-3")
        cluster.restart(3)
        eventually(lambda: all_in_sync(cluster), what="all replicas in sync")
        write(cluster, topic, 1)
        files = sorted((cluster.directory / "node-3" / f"{topic}-0").glob("*.log"))
        assert int(files[0].stem) > 0
        cluster.terminate(3)
        cluster.restart(3)
        eventually(lambda: all_in_sync(cluster), what="all replicas in sync again")
        assert "are damaged" not in cluster.log_of(3)
        assert sorted((cluster.directory / "node-3" / f"{topic}-0").glob("*.log"))[0] == files[0]


def test_a_broker_that_lost_a_log_before_its_first_checkpoint_and_starts_first_takes_none_from_the_others(
    tmp_path: Path,
) -> None:
    topic = "orders"
    values = [f"{number:03d}".ljust(100, ".") for number in range(300)]
    with LocalCluster(tmp_path / "data", *SUPERVISED, *NEVER) as cluster:
        # With one broker enough in sync, broker 1 may be the last one by its death, and an operator has to decide.
        create(cluster, topic, **{"ack.durability": "os", "min.insync.replicas": "2"})
        for first in range(0, len(values), 30):
            produce(cluster, topic, values[first : first + 30])
        for node_id in (2, 3, 1):
            cluster.kill(node_id)
        shutil.rmtree(cluster.directory / "node-1" / f"{topic}-0")
        cluster.restart(1)
        eventually(lambda: cluster.log_of(1).count("cordwood ready"), to_be=2, what="broker 1")
        cluster.restart(2)
        cluster.restart(3)
        eventually(lambda: all_in_sync(cluster), what="all replicas in sync")
        assert consume(cluster, topic, len(values)) == values
        assert f"{topic}-0 had records, and its directory is missing" in cluster.log_of(1)


def test_a_broker_whose_first_file_vanished_without_a_trace_takes_no_records_from_the_others(tmp_path: Path) -> None:
    topic = "orders"
    values = [f"{number:03d}".ljust(100, ".") for number in range(100)]
    with LocalCluster(tmp_path / "data", *SUPERVISED, *NEVER) as cluster:
        create(cluster, topic, **{"min.insync.replicas": "2", "segment.bytes": "1000"})
        for first in range(0, len(values), 5):
            produce(cluster, topic, values[first : first + 5])
        for node_id in (2, 3, 1):
            cluster.kill(node_id)
        home = cluster.directory / "node-1"
        min((home / f"{topic}-0").glob("*.log")).unlink()
        for pattern in ("log-start-offset-checkpoint*", "durable-end-witness-*"):
            for path in home.glob(pattern):
                path.unlink()
        cluster.restart(1)
        eventually(lambda: cluster.log_of(1).count("cordwood ready"), to_be=2, what="broker 1")
        cluster.restart(2)
        cluster.restart(3)
        eventually(lambda: all_in_sync(cluster), what="all replicas in sync")
        assert consume(cluster, topic, len(values)) == values
        assert "records may be missing at the beginning of its log" in cluster.log_of(1)
        assert first_batch(cluster, 1, topic) == 0, "broker 1 was filled anew"
