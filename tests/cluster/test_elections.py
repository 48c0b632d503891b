"""Elections that an administrator asks for, by an unmodified client, on three real brokers."""

from pathlib import Path

import pytest
from confluent_kafka import ElectionType, KafkaError, TopicPartition
from confluent_kafka.admin import AdminClient
from tests.cluster.local_cluster import LocalCluster
from tests.cluster.test_leader_killed import all_in_sync, create, leader_of
from tests.deadline import eventually

pytestmark = pytest.mark.timeout(300)


def elect(cluster: LocalCluster, kind: ElectionType, *partitions: TopicPartition) -> dict[tuple[str, int], str]:
    """Error names by topic and partition, as confluent-kafka reads them; without partitions of all topics."""
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    asked = list(partitions) or None
    outcomes: dict[TopicPartition, KafkaError | None] = admin.elect_leaders(kind, asked).result(timeout=60)
    return {
        (each.topic, each.partition): "NONE" if outcome is None else outcome.name()
        for each, outcome in outcomes.items()
    }


def test_the_preferred_leader_is_elected_when_an_administrator_says_so(tmp_path: Path) -> None:
    options = ("--metadata", "supervisor", "--set", "auto.leader.rebalance.enable=false")
    with LocalCluster(tmp_path / "data", *options) as cluster:
        # A topic that is made before all brokers take part is led by another replica than its first.
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
        eventually(lambda: len(admin.list_topics(timeout=60).brokers), to_be=3, what="the brokers that take part")
        topic = create(cluster, 1, 3)
        first = TopicPartition(topic, 0)
        preferred = leader_of(cluster, topic)
        cluster.kill(preferred)
        eventually(lambda: leader_of(cluster, topic) not in (preferred, -1), what="another leader")
        assert elect(cluster, ElectionType.PREFERRED, first) == {(topic, 0): "PREFERRED_LEADER_NOT_AVAILABLE"}
        cluster.restart(preferred)
        eventually(lambda: all_in_sync(cluster), what="all replicas in sync")
        assert leader_of(cluster, topic) != preferred
        assert elect(cluster, ElectionType.PREFERRED, first, TopicPartition("none", 7)) == {
            (topic, 0): "NONE",
            ("none", 7): "UNKNOWN_TOPIC_OR_PART",
        }
        eventually(lambda: leader_of(cluster, topic) == preferred, what="the preferred leader")
        assert elect(cluster, ElectionType.PREFERRED, first) == {(topic, 0): "ELECTION_NOT_NEEDED"}
        assert elect(cluster, ElectionType.UNCLEAN, first) == {(topic, 0): "ELECTION_NOT_NEEDED"}
        assert (topic, 0) not in elect(cluster, ElectionType.PREFERRED)
