"""Commands that ask every broker, when one has just ended: librdkafka still knows it, and none of them waits for it."""

from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from tests.cluster.local_cluster import LocalCluster
from tests.cluster.test_leader_killed import create
from tests.cluster.test_moves import cordwood

pytestmark = pytest.mark.timeout(300)

GROUPS = [f"group-{number}" for number in range(5)]


def test_groups_transactions_and_settings_are_shown_while_a_broker_is_away(tmp_path: Path) -> None:
    with LocalCluster(tmp_path / "data", "--metadata", "supervisor") as cluster:
        topic = create(cluster, 3, 3)
        for group in GROUPS:
            consumer = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": group})
            consumer.commit(offsets=[TopicPartition(topic, 0, 0)], asynchronous=False)
            consumer.close()
        producer = Producer({"bootstrap.servers": cluster.bootstrap, "transactional.id": "copies"})
        producer.init_transactions(60)
        # The first one that librdkafka lists.
        cluster.kill(1)
        assert [group["name"] for group in cordwood(cluster, "group", "list")] == GROUPS
        assert cordwood(cluster, "group", "describe", GROUPS[0])["state"] == "empty"
        assert [each["transactional_id"] for each in cordwood(cluster, "transaction", "list")] == ["copies"]
        assert cordwood(cluster, "transaction", "describe", "copies")["transactional_id"] == "copies"
        bundle = cordwood(cluster, "support-bundle", "--output", str(tmp_path / "bundle.tar.gz"))
        assert "settings.json" in bundle["parts"], bundle["missing"]
