"""The topics that the image of the metadata knows: for the judgement on directories at a start, and for the logs."""

import logging

from cordwood.cluster.metadata.image import ClusterImage, TopicImage
from cordwood.log.directory.data_directories import DataDirectories
from cordwood.log.directory.strays import Known
from cordwood.model.identifiers import TopicId, TopicPartition
from cordwood.node.loop.reports import Reports
from cordwood.segments.partition_metadata import TopicDescription


def known_topics(image: ClusterImage) -> Known:
    def topic_id(name: TopicPartition) -> TopicId | None:
        return None if image.partition_of(*name) is None else image.topic_id(name.topic)

    def is_replica(name: TopicPartition) -> bool:
        partition = image.partition_of(*name)
        return partition is not None and image.node_id in partition.replicas

    tombstones = {topic_id: stone.name for topic_id, stone in image.deleted_topics.items()}
    return Known(topic_id, tombstones, is_replica)


def describe_topic(topic: TopicImage, node_id: int, logs: DataDirectories, reports: Reports) -> None:
    """Has the topic's description kept beside its logs. Warns of a topic that takes no records with acks=all."""
    logs.describe_topic(topic.topic_id, TopicDescription(len(topic.partitions), topic.overrides))
    first, needed = topic.partitions[0], topic.settings.min_insync_replicas
    if needed > len(first.replicas) and first.leader == node_id:
        reports.report(
            logging.WARNING,
            f"topic {topic.name} takes no records with acks=all: its min.insync.replicas={needed} is above its "
            f"replication factor of {len(first.replicas)}",
        )
