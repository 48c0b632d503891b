"""Bytes of partitions' logs, as their brokers tell them."""

from __future__ import annotations

from collections.abc import Collection

from cordwood.client.brokers import Brokers
from cordwood.model.identifiers import TopicPartition
from cordwood.wire.apis import ApiKey


def log_sizes(brokers: Brokers, topics: Collection[str]) -> dict[TopicPartition, int]:
    """The size of each partition, by its largest replica. Partitions whose brokers do not tell are left out."""
    described = brokers.describe(topics)
    asked = [
        {"topic": topic.name, "partitions": [partition.index for partition in topic.partitions]}
        for topic in described.values()
    ]
    sizes: dict[TopicPartition, int] = {}
    for link in brokers.all():
        for directory in link.ask(ApiKey.DESCRIBE_LOG_DIRS, {"topics": asked}).results:
            for topic in directory.topics:
                for each in topic.partitions:
                    if not each.is_future_key and each.partition_size >= 0:
                        place = TopicPartition(topic.name, each.partition_index)
                        sizes[place] = max(sizes.get(place, 0), each.partition_size)
    return sizes
