"""Keys that belong to no topic: remains of an interrupted creation or addition, or parts of one under way."""

from dataclasses import dataclass

from cordwood.cluster.metadata.rows import TopicRow
from cordwood.model.identifiers import TopicId


@dataclass(frozen=True, slots=True)
class StrayTopic:
    """A topic without a name, whose keys are all to be removed."""

    topic_id: TopicId
    row_revision: int
    """The revision of the key that holds the partition count; 0: no such key."""


@dataclass(frozen=True, slots=True)
class StrayPartitions:
    """Partitions at or beyond their topic's partition count."""

    topic_id: TopicId
    row: TopicRow
    row_revision: int
    partitions: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Strays:
    """Keys that belong to no topic, left by an interrupted creation or deletion."""

    topics: tuple[StrayTopic, ...] = ()
    partitions: tuple[StrayPartitions, ...] = ()
