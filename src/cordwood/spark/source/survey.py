"""Surveys the partitions of a query on the cluster: their beginnings and ends.

A survey serves one decision: a planner surveys, then judges and plans with the result.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from cordwood.client.answers import EARLIEST, LATEST, Isolation, TopicMetadata
from cordwood.client.cluster import Cluster
from cordwood.model.identifiers import TopicId, TopicPartition
from cordwood.spark.options.names import ASSIGN, SUBSCRIBE, did_you_mean
from cordwood.spark.source.boundaries import Partitions, Pattern, Subscription, Topics
from cordwood.spark.source.data_loss import Partition
from cordwood.spark.source.offsets import Positions, to_spark


class NothingToRead(Exception):
    """A topic or partition that was asked for does not exist."""


@dataclass(frozen=True)
class Survey:
    partitions: Mapping[TopicPartition, Partition]
    readable: Positions
    """The end of each partition for a reader of this isolation: its high watermark or its last stable offset."""

    @property
    def earliest(self) -> Positions:
        """The beginning of each partition; for one that a query has read to its end, the end."""
        return {partition: found.earliest for partition, found in self.partitions.items()}

    @property
    def topic_ids(self) -> dict[str, TopicId]:
        ids = {name.topic: found.topic_id for name, found in self.partitions.items()}
        return {topic: topic_id for topic, topic_id in ids.items() if topic_id is not None}


def subscribed_partitions(cluster: Cluster, subscription: Subscription) -> dict[TopicPartition, TopicId | None]:
    """The partitions of the subscription that exist now, with their topics' ids."""
    match subscription:
        case Topics(names):
            found = cluster.topics(names)
        case Pattern():
            found = {name: topic for name, topic in cluster.topics().items() if _matches(subscription, topic)}
        case Partitions():
            found = cluster.topics(subscription.topics)
    existing = {
        TopicPartition(name, partition.index): topic.topic_id
        for name, topic in found.items()
        for partition in topic.partitions
    }
    if isinstance(subscription, Partitions):
        existing = {name: topic_id for name, topic_id in existing.items() if name in subscription.partitions}
    return existing


def check_all_exist(
    cluster: Cluster, subscription: Subscription, existing: Collection[TopicPartition], servers: str
) -> None:
    """Refuses missing topics at the beginning of a query; later they may come and go."""
    if isinstance(subscription, Topics):
        missing = sorted(set(subscription.names) - {topic for topic, _ in existing})
        option = SUBSCRIBE
    elif isinstance(subscription, Partitions):
        missing = sorted(str(partition) for partition in subscription.partitions - set(existing))
        option = ASSIGN
    else:
        return
    if missing:
        near = did_you_mean(missing[0], cluster.topics())
        raise NothingToRead(
            f"{option}: {', '.join(missing)} does not exist on {servers}.{near} Reading creates no topic."
        )


def survey(
    cluster: Cluster,
    partitions: Mapping[TopicPartition, TopicId | None],
    isolation: Isolation,
    start: Mapping[TopicPartition, int] | None = None,
) -> Survey:
    """Surveys partitions, without those that went away meanwhile. Given a query's positions, facts that cannot matter
    are not asked for: the beginning of a log that was read to its end, and the end that readers of uncommitted records
    see."""
    ends = cluster.list_offsets(dict.fromkeys(partitions, LATEST), isolation)
    unread = [name for name, found in ends.items() if start is None or start.get(name) != found.offset]
    earliest = cluster.list_offsets(dict.fromkeys(unread, EARLIEST))
    ahead = [name for name in unread if start is None or start.get(name, 0) > ends[name].offset]
    # A position behind an open transaction may lie beyond the committed records and still be within the log.
    beyond = cluster.list_offsets(dict.fromkeys(ahead, LATEST)) if isolation is Isolation.READ_COMMITTED else {}
    found = {}
    for name in sorted(ends):
        end = ends[name].offset
        if name not in unread:
            found[name] = Partition(partitions[name], end, end)
        elif name in earliest:
            latest = max(end, beyond[name].offset) if name in beyond else end
            found[name] = Partition(partitions[name], earliest[name].offset, latest)
    return Survey(found, {name: ends[name].offset for name in found})


def names_of(partitions: Collection[TopicPartition]) -> str:
    """The partitions as text for messages."""
    topics = to_spark(dict.fromkeys(partitions, 0))
    return ", ".join(f"{topic} [{', '.join(found)}]" for topic, found in topics.items()) or "none"


def _matches(pattern: Pattern, topic: TopicMetadata) -> bool:
    return pattern.matches(topic.name) and not (pattern.exclude_internal and topic.is_internal)
