"""Where the log ends, for how far behind a pipeline is."""

from collections.abc import Iterable

from cordwood.client.cluster import LATEST, Cluster, Isolation
from cordwood.client.settings import ClientSettings
from cordwood.model.identifiers import TopicPartition
from cordwood.pipelines.positions import Positions, ahead, distance


def log_ends(bootstrap_servers: str, topics: Iterable[str]) -> Positions:
    """The offset after the last committed record of every partition. Topics that do not exist have none."""
    with Cluster(ClientSettings(bootstrap_servers)) as cluster:
        found = cluster.topics(list(topics))
        asked = {
            TopicPartition(topic.name, partition.index): LATEST
            for topic in found.values()
            for partition in topic.partitions
        }
        ends: dict[str, dict[int, int]] = {}
        for partition, answer in cluster.list_offsets(asked, Isolation.READ_COMMITTED).items():
            ends.setdefault(partition.topic, {})[partition.partition] = answer.offset
        return ends


def records_behind(bootstrap_servers: str, topics: Iterable[str], position: Positions) -> int:
    return distance(ahead(log_ends(bootstrap_servers, topics), position))
