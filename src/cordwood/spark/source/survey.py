"""Surveys the partitions of a query on the cluster, and resolves the beginning and the end of a read in them.

A survey serves one decision: a planner surveys, then judges and plans with the result. Positions that do not exist are
found here, before anything is read: an offset before the log is a loss, an offset beyond its end is a mistake.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from cordwood.client.answers import EARLIEST, LATEST, FoundOffset, Isolation, TopicMetadata
from cordwood.client.cluster import Cluster
from cordwood.model.identifiers import TopicId, TopicPartition
from cordwood.spark.options import names as names
from cordwood.spark.options.names import ASSIGN, SUBSCRIBE, did_you_mean
from cordwood.spark.source.boundaries import (
    AtGroup,
    AtOffsets,
    AtTime,
    AtTimes,
    Boundary,
    Edge,
    NoLaterRecord,
    Partitions,
    Pattern,
    Subscription,
    Topics,
)
from cordwood.spark.source.data_loss import Partition
from cordwood.spark.source.offsets import Positions, to_spark
from cordwood.spark.source.options import SourceOptions


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


@dataclass(frozen=True)
class Resolver:
    """Resolves boundaries against one survey, so that the beginning and the end fit together."""

    cluster: Cluster
    options: SourceOptions
    survey: Survey

    def start(self) -> Positions:
        """The positions as asked for: one may be gone, or lie beyond the end."""
        boundary = self.options.starting
        if isinstance(boundary, AtGroup):
            return self._at_group(boundary)
        if isinstance(boundary, AtTime | AtTimes):
            return self._at_times(boundary, is_start=True)
        return self._at_offsets(boundary, names.STARTING_OFFSETS)

    def end(self) -> Positions:
        boundary = self.options.ending
        if isinstance(boundary, AtTime | AtTimes):
            return self._at_times(boundary, is_start=False)
        return self._at_offsets(boundary, names.ENDING_OFFSETS)

    def _at_offsets(self, boundary: Boundary, option: str) -> Positions:
        edges = {EARLIEST: self.survey.earliest, LATEST: self.survey.readable}
        if boundary is Edge.EARLIEST:
            return dict(edges[EARLIEST])
        if boundary is Edge.LATEST:
            return dict(edges[LATEST])
        assert isinstance(boundary, AtOffsets)
        self._check_covers(boundary.positions, option)
        return {
            partition: edges[offset][partition] if offset in edges else offset
            for partition, offset in boundary.positions.items()
        }

    def _at_group(self, boundary: AtGroup) -> Positions:
        committed = self.cluster.committed(boundary.group, list(self.survey.partitions))
        return {partition: committed.get(partition, earliest) for partition, earliest in self.survey.earliest.items()}

    def _at_times(self, boundary: AtTime | AtTimes, *, is_start: bool) -> Positions:
        if isinstance(boundary, AtTimes):
            option = names.STARTING_OFFSETS_BY_TIMESTAMP if is_start else names.ENDING_OFFSETS_BY_TIMESTAMP
            times: Mapping[TopicPartition, int] = boundary.timestamps_ms
            self._check_covers(times, option)
        else:
            option = names.STARTING_TIMESTAMP if is_start else names.ENDING_TIMESTAMP
            times = dict.fromkeys(self.survey.partitions, boundary.timestamp_ms)
        found = self.cluster.list_offsets(times, self.options.isolation)
        late = sorted(partition for partition in times if _offset(found, partition) is None)
        if late and is_start and self.options.no_later_record is NoLaterRecord.ERROR:
            raise NothingToRead(
                f"{option}: no record is as late as that in {names_of(late)}. Choose an earlier time, or set"
                f" {names.STARTING_STRATEGY}=latest to begin such partitions at their end."
            )
        positions = {}
        for partition in times:
            offset = _offset(found, partition)
            positions[partition] = self.survey.readable[partition] if offset is None else offset
        return positions

    def _check_covers(self, given: Mapping[TopicPartition, int], option: str) -> None:
        missing = set(self.survey.partitions) - set(given)
        unknown = set(given) - set(self.survey.partitions)
        if missing or unknown:
            problems = []
            if missing:
                problems.append(f"it says nothing about {names_of(missing)}")
            if unknown:
                problems.append(f"it names {names_of(unknown)}, which the query does not read")
            raise NothingToRead(
                f"{option} must name each partition that is read: {', and '.join(problems)}."
                " Use -2 for the earliest and -1 for the latest offset."
            )


def _offset(found: Mapping[TopicPartition, FoundOffset], partition: TopicPartition) -> int | None:
    answer = found.get(partition)
    return None if answer is None or answer.offset < 0 else answer.offset
