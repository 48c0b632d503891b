"""A real broker is away while compaction drops an abort marker and a tombstone: it brings back neither record."""

from pathlib import Path

import pytest
from confluent_kafka import Consumer, ElectionType, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from tests.cluster.local_cluster import LocalCluster
from tests.cluster.test_known_disks import OFTEN, SUPERVISED
from tests.cluster.test_leader_killed import FAILOVER_WITHIN_S, all_in_sync, leader_of
from tests.deadline import eventually

from cordwood.segments.dropped_deletions import FILE_NAME, decode_dropped

pytestmark = pytest.mark.timeout(200)

TOPIC = "latest"
SETTINGS = {
    "cleanup.policy": "compact",
    "min.cleanable.dirty.ratio": "0.01",
    "segment.bytes": "200",
    "delete.retention.ms": "100",
    "min.insync.replicas": "1",
}
FAR_AWAY = ("--set", "replica.lag.time.max.ms=1000")


def write(producer: Producer, key: bytes, value: bytes | None) -> None:
    producer.produce(TOPIC, value, key=key, partition=0)
    assert producer.flush(FAILOVER_WITHIN_S) == 0


def committed(cluster: LocalCluster) -> dict[bytes, bytes | None]:
    """The latest committed value of each key; None for a tombstone."""
    consumer = Consumer(
        {
            "bootstrap.servers": cluster.bootstrap,
            "group.id": "nobody",
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
        }
    )
    latest: dict[bytes, bytes | None] = {}

    def at_the_end() -> bool:
        message = consumer.poll(0.5)
        if message is not None and message.error() is None:
            latest[message.key() or b""] = message.value()
        return message is not None and message.error() is not None

    try:
        consumer.assign([TopicPartition(TOPIC, 0, 0)])
        eventually(at_the_end, what="the end of the partition")
    finally:
        consumer.close()
    return latest


def highest_dropped(cluster: LocalCluster, node_id: int) -> int:
    note = cluster.directory / f"node-{node_id}" / f"{TOPIC}-0" / FILE_NAME
    return decode_dropped(note.read_bytes()).highest if note.exists() else -1


def test_a_broker_that_was_away_brings_back_neither_aborted_records_nor_deleted_keys(tmp_path: Path) -> None:
    with LocalCluster(tmp_path / "data", *SUPERVISED, *OFTEN, *FAR_AWAY) as cluster:
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
        admin.create_topics([NewTopic(TOPIC, 1, replica_assignment=[[3, 1, 2]], config=SETTINGS)])[TOPIC].result(60)
        plain = Producer({"bootstrap.servers": cluster.bootstrap, "acks": "all"})
        write(plain, b"deleted", b"value")
        write(plain, b"kept", b"value")
        transactional = Producer({"bootstrap.servers": cluster.bootstrap, "transactional.id": "writer"})
        transactional.init_transactions(FAILOVER_WITHIN_S)
        transactional.begin_transaction()
        write(transactional, b"kept", b"aborted")
        cluster.kill(3)
        transactional.abort_transaction(FAILOVER_WITHIN_S)
        transactional.begin_transaction()
        write(transactional, b"another", b"1")
        transactional.commit_transaction(FAILOVER_WITHIN_S)
        write(plain, b"deleted", None)

        def both_are_dropped() -> bool:
            write(plain, b"other", b"more" * 30)
            return min(highest_dropped(cluster, node_id) for node_id in (1, 2)) >= 6

        # Offsets 3 and 6 hold the abort marker and the tombstone.
        eventually(both_are_dropped, what="a compaction that drops the tombstone")
        cluster.restart(3)
        eventually(lambda: all_in_sync(cluster), what="all replicas in sync")
        transactional.begin_transaction()
        write(transactional, b"another", b"2")
        transactional.commit_transaction(FAILOVER_WITHIN_S)
        admin.elect_leaders(ElectionType.PREFERRED, [TopicPartition(TOPIC, 0)]).result(FAILOVER_WITHIN_S)
        eventually(lambda: leader_of(cluster, TOPIC), to_be=3, what="the preferred leader")
        found = committed(cluster)
        assert (found.get(b"deleted"), found[b"kept"], found[b"another"]) == (None, b"value", b"2")
        assert "removed markers or tombstones by compaction that this copy never had" in cluster.log_of(3)
