"""Where the log ends and begins: how far behind a pipeline is, and how much of history is left."""

from collections.abc import Iterable

from cordwood.client.cluster import EARLIEST, LATEST, Cluster, Isolation
from cordwood.client.settings import ClientSettings
from cordwood.model.identifiers import TopicPartition
from cordwood.pipelines.positions import Positions, ahead, distance


def log_ends(bootstrap_servers: str, topics: Iterable[str]) -> Positions:
    """The offset after the last committed record of every partition. Topics that do not exist have none."""
    return _offsets(bootstrap_servers, topics, LATEST)


def log_starts(bootstrap_servers: str, topics: Iterable[str]) -> Positions:
    """Where partitions begin whose first records are gone."""
    starts = _offsets(bootstrap_servers, topics, EARLIEST)
    later = {topic: {index: start for index, start in each.items() if start > 0} for topic, each in starts.items()}
    return {topic: each for topic, each in later.items() if each}


def records_behind(bootstrap_servers: str, topics: Iterable[str], position: Positions) -> int:
    return distance(ahead(log_ends(bootstrap_servers, topics), position))


def _offsets(bootstrap_servers: str, topics: Iterable[str], which: int) -> Positions:
    with Cluster(ClientSettings(bootstrap_servers)) as cluster:
        found = cluster.topics(list(topics))
        asked = {
            TopicPartition(topic.name, partition.index): which
            for topic in found.values()
            for partition in topic.partitions
        }
        offsets: dict[str, dict[int, int]] = {}
        for partition, answer in cluster.list_offsets(asked, Isolation.READ_COMMITTED).items():
            offsets.setdefault(partition.topic, {})[partition.partition] = answer.offset
        return offsets
