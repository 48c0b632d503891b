"""Plans to put back a topic that the metadata lost: with its id, and at least the partitions that are on disk.

Leader epochs go on where the logs ended: a lower epoch would make clients take new records for old ones.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from cordwood.cluster.metadata.image import ClusterImage
from cordwood.cluster.metadata.rows import (
    PartitionRow,
    TopicRow,
    encode_partition,
    encode_topic,
    partition_key,
    topic_key,
)
from cordwood.cluster.planner.placement import place
from cordwood.cluster.planner.store_transactions import Plan, plan_creation, plan_in_chunks
from cordwood.cluster.stores.interface import Put, has_mod_revision
from cordwood.model.errors import ErrorCode, ProtocolError
from cordwood.model.identifiers import TopicId, check_topic_name


@dataclass(frozen=True, slots=True)
class LostTopic:
    """A topic as known from its directories."""

    name: str
    topic_id: TopicId
    partition_count: int
    leader_epochs: Mapping[int, int] = field(default_factory=lambda: MappingProxyType({}))
    """The last leader epoch in the log, by partition."""
    overrides: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    """The settings of a topic that the metadata does not know."""


def plan_put_back(image: ClusterImage, topic: LostTopic) -> Plan | None:
    """The plan; None if the metadata has the whole topic. ProtocolError if another topic has the name or the id."""
    check_topic_name(topic.name)
    known = image.topics_by_id.get(topic.topic_id)
    if known is not None and known.name != topic.name:
        raise ProtocolError(
            ErrorCode.INVALID_TOPIC_EXCEPTION, f"Topic id {topic.topic_id} belongs to topic '{known.name}' now."
        )
    if known is None and topic.name in image.topics:
        raise ProtocolError(
            ErrorCode.TOPIC_ALREADY_EXISTS, f"Another topic has the name '{topic.name}': it was created since."
        )
    if known is None and (like := image.topic_like(topic.name)) is not None:
        raise ProtocolError(
            ErrorCode.INVALID_TOPIC_EXCEPTION,
            f"Topic '{topic.name}' collides with existing topic: {like} (names that differ only in '.' and '_' do).",
        )
    count_before = 0 if known is None else len(known.partitions)
    if known is not None and topic.partition_count <= count_before:
        return None
    row = TopicRow(topic.name, topic.partition_count, () if known is None else known.unknown)
    partitions = _partitions(image, topic, range(count_before, topic.partition_count))
    if known is not None:
        put = Put(topic_key(topic.topic_id), encode_topic(row))
        guards = (has_mod_revision(put.key, known.mod_revision),)
        return plan_in_chunks(partitions, guards=guards, commit_compares=(), commit_operations=(put,))
    return plan_creation(topic.topic_id, row, partitions, commit_compares=(), overrides=topic.overrides)


def _partitions(image: ClusterImage, topic: LostTopic, partitions: range) -> list[Put]:
    """Rows of the partitions, with one replica each."""
    # The brokers do not run: they have epochs, but no rows.
    brokers = place(sorted(image.broker_epochs), partitions, 1, topic.topic_id.int)
    puts = []
    for partition, replicas in zip(partitions, brokers, strict=True):
        leader = replicas[0]
        epoch = topic.leader_epochs.get(partition, 0)
        row = PartitionRow(leader, image.broker_epochs[leader], epoch, replicas=replicas, isr=replicas)
        puts.append(Put(partition_key(topic.topic_id, partition), encode_partition(row, image.metadata_version)))
    return puts
