"""The cluster's own topics: their settings, and more replicas for them when there are more brokers.

An internal topic is created when it is first needed, often before all brokers have registered. Such a topic has at most
as many replicas as there were electable brokers. Its partitions get the missing replicas as soon as brokers can host
them. A new replica is in `adding` until it is in sync. Until then it does not count for min.insync.replicas, and
coordinators go on.
"""

from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

from cordwood.cluster.metadata.image import ClusterImage, TopicImage
from cordwood.cluster.metadata.partitions import PartitionImage
from cordwood.cluster.metadata.rows import PartitionRow
from cordwood.cluster.planner.isr import GuardedPut
from cordwood.cluster.planner.placement import placeable
from cordwood.cluster.planner.reassignment import begun, is_moving, moved
from cordwood.cluster.planner.topics import NewTopic
from cordwood.model.identifiers import CONSUMER_OFFSETS_TOPIC, INTERNAL_TOPICS, TRANSACTION_STATE_TOPIC
from cordwood.model.settings.broker_settings import BrokerSettings


class Shortage(NamedTuple):
    """An internal topic with fewer replicas than its setting asks for."""

    topic: str
    replicas: int
    setting: str
    wanted: int


def internal_topic(name: str, settings: BrokerSettings, brokers: int) -> NewTopic:
    """The settings with which an internal topic is created in a cluster of this many brokers."""
    _, wanted = _wanted(name, settings)
    replication_factor = max(1, min(wanted, brokers))
    if name == TRANSACTION_STATE_TOPIC:
        return NewTopic(
            name,
            settings.transaction_state_log_num_partitions,
            replication_factor,
            configs={
                "cleanup.policy": "compact",
                "compression.type": "producer",
                "min.insync.replicas": str(settings.transaction_state_log_min_isr),
                "segment.bytes": str(settings.transaction_state_log_segment_bytes),
            },
        )
    return NewTopic(
        name,
        settings.offsets_topic_num_partitions,
        replication_factor,
        configs={
            "cleanup.policy": "compact",
            "compression.type": "producer",
            "segment.bytes": str(settings.offsets_topic_segment_bytes),
        },
    )


def _wanted(name: str, settings: BrokerSettings) -> tuple[str, int]:
    """The setting of an internal topic's replication factor, and its value."""
    if name == TRANSACTION_STATE_TOPIC:
        return "transaction.state.log.replication.factor", settings.transaction_state_log_replication_factor
    assert name == CONSUMER_OFFSETS_TOPIC, f"{name} is no internal topic of this version"
    return "offsets.topic.replication.factor", settings.offsets_topic_replication_factor


def shortages(image: ClusterImage) -> Iterator[Shortage]:
    for topic in _internal(image):
        setting, wanted = _wanted(topic.name, image.settings)
        fewest = min(len(each.replicas) - len(each.adding) for each in topic.partitions)
        if fewest < wanted:
            yield Shortage(topic.name, fewest, setting, wanted)


def plan_growth(image: ClusterImage) -> list[GuardedPut]:
    """The writes that add missing replicas to internal topics."""
    writes = []
    brokers = sorted(placeable(image))
    for topic in _internal(image):
        _, wanted = _wanted(topic.name, image.settings)
        hosted = Counter(broker for each in topic.partitions for broker in each.replicas)
        for index, partition in enumerate(topic.partitions):
            row = _grown(image, partition, brokers, wanted, hosted)
            if row is not None:
                writes.append(moved(image, topic, index, row))
    return writes


def _internal(image: ClusterImage) -> list[TopicImage]:
    return [image.topics[name] for name in sorted(INTERNAL_TOPICS) if name in image.topics]


def _grown(
    image: ClusterImage, partition: PartitionImage, brokers: list[int], wanted: int, hosted: Counter[int]
) -> PartitionRow | None:
    if is_moving(partition):
        return None
    leader, _ = image.leadership(partition)
    missing = min(wanted, len(brokers)) - len(partition.replicas)
    if missing <= 0 or leader not in image.brokers:
        return None
    free = sorted((broker for broker in brokers if broker not in partition.replicas), key=hosted.__getitem__)
    adding = tuple(free[:missing])
    if not adding:
        return None
    hosted.update(adding)
    return begun(image, partition, (*partition.replicas, *adding))
