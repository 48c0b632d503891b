"""DeleteRecords and a leader that is killed: on real brokers, by an unmodified client."""

from contextlib import suppress
from pathlib import Path

import pytest
from confluent_kafka import OFFSET_END, Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from tests.cluster.local_cluster import LocalCluster
from tests.deadline import eventually

TOPIC, PARTITIONS, RECORDS = "deleted", 6, 50
pytestmark = pytest.mark.timeout(300)


def test_deleted_records_stay_deleted_when_leaders_are_killed_behind_the_answer(tmp_path: Path) -> None:
    with LocalCluster(tmp_path / "data", "--metadata", "supervisor") as cluster:
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
        new = NewTopic(TOPIC, num_partitions=PARTITIONS, replication_factor=3, config={"min.insync.replicas": "1"})
        admin.create_topics([new])[TOPIC].result(timeout=60)
        producer = Producer({"bootstrap.servers": cluster.bootstrap, "acks": "all"})
        for number in range(RECORDS * PARTITIONS):
            producer.produce(TOPIC, value=b"value", partition=number % PARTITIONS)
        assert producer.flush(60) == 0
        ends = [TopicPartition(TOPIC, index, OFFSET_END) for index in range(PARTITIONS)]
        outcomes = admin.delete_records(ends, request_timeout=30)
        assert [future.result(timeout=60).low_watermark for future in outcomes.values()] == [RECORDS] * PARTITIONS
        cluster.kill(2)
        assert _starts(cluster) == [RECORDS] * PARTITIONS
        cluster.restart(2)
        assert _starts(cluster) == [RECORDS] * PARTITIONS


def _starts(cluster: LocalCluster) -> list[int]:
    """The first start that a leader of each partition tells. While a leader is elected, nobody tells one."""
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": "watch"})
    told: dict[int, int] = {}

    def all_told() -> bool:
        for index in range(PARTITIONS):
            if index not in told:
                with suppress(KafkaException):
                    told[index] = consumer.get_watermark_offsets(TopicPartition(TOPIC, index), timeout=5)[0]
        return len(told) == PARTITIONS

    try:
        eventually(all_told, what="the starts of all partitions")
    finally:
        consumer.close()
    return [told[index] for index in range(PARTITIONS)]
