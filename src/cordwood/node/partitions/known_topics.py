"""The topics that the image of the metadata knows, for the judgement on directories at a start."""

from cordwood.cluster.metadata.image import ClusterImage
from cordwood.log.directory.strays import Known
from cordwood.model.identifiers import TopicId, TopicPartition


def known_topics(image: ClusterImage) -> Known:
    def topic_id(name: TopicPartition) -> TopicId | None:
        return None if image.partition_of(*name) is None else image.topic_id(name.topic)

    def is_replica(name: TopicPartition) -> bool:
        partition = image.partition_of(*name)
        return partition is not None and image.node_id in partition.replicas

    tombstones = {topic_id: stone.name for topic_id, stone in image.deleted_topics.items()}
    return Known(topic_id, tombstones, is_replica)
