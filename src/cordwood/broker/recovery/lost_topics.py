"""The directories that were set aside, grouped by their topics."""

import os
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from cordwood.cluster.planner.internal_topics import internal_topic
from cordwood.cluster.planner.put_back import LostTopic
from cordwood.log.inspection.directory import DataDirectoryView, Partition, last_offsets
from cordwood.model.failure import ExitCode, Failure, near_names
from cordwood.model.identifiers import INTERNAL_TOPICS, TopicId, TopicPartition
from cordwood.model.settings.broker_settings import BrokerSettings
from cordwood.records.batch import HEADER_SIZE, read_header
from cordwood.segments.names import Suffix
from cordwood.segments.partition_metadata import topic_id_text
from cordwood.segments.set_aside import LONGEST_PART

KEEP_ALL = {"retention.ms": "-1", "retention.bytes": "-1"}
"""Settings of a topic that lost its own: the broker's defaults might delete at once the records just put back."""


@dataclass(slots=True)
class SetAsideTopic:
    """The directories of one topic id."""

    name: str
    topic_id: TopicId | None
    """None if no directory of the topic has a trustworthy id."""
    partitions: list[Partition]

    @property
    def topic_id_text(self) -> str | None:
        return None if self.topic_id is None else topic_id_text(self.topic_id)

    @property
    def directories(self) -> list[str]:
        return [os.path.basename(read.directory) for read in self.partitions]


def topics_set_aside(data: DataDirectoryView) -> list[SetAsideTopic]:
    """The topics, by name and id. A directory without an id gets the id of the others with its name, if they agree."""
    ids: dict[str, set[TopicId]] = {}
    for read in data.set_aside:
        if read.topic_id is not None:
            ids.setdefault(read.partition.topic, set()).add(read.topic_id)
    gathered: dict[tuple[str, TopicId | None], SetAsideTopic] = {}
    for read in data.set_aside:
        name, topic_id = read.partition.topic, read.topic_id
        if topic_id is None and len(ids.get(name, ())) == 1:
            (topic_id,) = ids[name]
        gathered.setdefault((name, topic_id), SetAsideTopic(name, topic_id, [])).partitions.append(read)
    return sorted(gathered.values(), key=lambda topic: (topic.name, str(topic.topic_id)))


def chosen_topics(found: list[SetAsideTopic], names: list[str], *, everything: bool) -> list[SetAsideTopic]:
    """The topics that `names` lists, by topic or by directory."""
    if everything == bool(names):
        raise Failure("USAGE", "name topics or directories, or give --all", "", ExitCode.USAGE)
    chosen = list(found) if everything else []
    for name in names:
        of_topic = [topic for topic in found if topic.name == name]
        if len(of_topic) > 1:
            directories = ", ".join(directory for topic in of_topic for directory in topic.directories)
            raise Failure(
                "AMBIGUOUS",
                f"several topics named {name} were set aside at different times",
                f"name the directories to put back: {directories}",
            )
        by_directory = [
            SetAsideTopic(topic.name, topic.topic_id, [read])
            for topic in found
            for read in topic.partitions
            if os.path.basename(read.directory) == name
        ]
        if not of_topic and not by_directory:
            known = [known for topic in found for known in (topic.name, *topic.directories)]
            raise Failure("NOT_SET_ASIDE", f"{name} is not set aside", near_names(name, known), ExitCode.NOT_FOUND)
        for topic in of_topic or by_directory:
            _add(chosen, topic)
    for topic in chosen:
        _check(topic)
    return chosen


def _add(chosen: list[SetAsideTopic], topic: SetAsideTopic) -> None:
    same = next((each for each in chosen if (each.name, each.topic_id) == (topic.name, topic.topic_id)), None)
    if same is None:
        chosen.append(topic)
    else:
        same.partitions += [read for read in topic.partitions if read not in same.partitions]


def _check(topic: SetAsideTopic) -> None:
    numbers = [read.partition.partition for read in topic.partitions]
    if len(set(numbers)) < len(numbers):
        raise Failure(
            "AMBIGUOUS",
            f"a partition of {topic.name} was set aside more than once",
            f"name the directories to put back: {', '.join(topic.directories)}",
        )
    for read in topic.partitions:
        if len(str(read.partition)) >= LONGEST_PART and read.unreadable:
            raise Failure(
                "UNREADABLE", f"{read.directory}: its note is damaged, and its name too short to name the partition"
            )


class Rebuilt(NamedTuple):
    """A topic to add to the metadata, which lost it."""

    topic: LostTopic
    count_is_known: bool
    """True if the number of partitions is known. If not, the highest partition on disk is the last."""
    retention: Mapping[str, str]
    """The retention that the topic had. Retention is off until the operator sets it, so that no record is deleted
    before."""


def rebuilt_topic(
    topic: SetAsideTopic,
    name: str,
    in_place: list[Partition],
    settings: BrokerSettings,
    partition_count: int | None = None,
) -> Rebuilt:
    """`in_place`: partitions of the topic that are not set aside. `partition_count`: the operator's number."""
    partitions = [*topic.partitions, *in_place]
    on_disk = max(read.partition.partition + 1 for read in partitions)
    if partition_count is not None and partition_count < on_disk:
        raise Failure("USAGE", f"{name} has partition {on_disk - 1} on disk: --partitions {partition_count} is too few")
    described = [read.description for read in partitions if read.description is not None]
    counts = [partition_count] if partition_count is not None else [each.partition_count for each in described]
    overrides = _overrides(topic, name, [each.overrides for each in described], settings)
    retention = {key: overrides[key] for key in KEEP_ALL if key in overrides and name not in INTERNAL_TOPICS}
    if name not in INTERNAL_TOPICS:
        overrides |= KEEP_ALL
    elif not counts:
        # A group or a transactional id is looked for in the partition that its hash gives, modulo this count.
        # Partitions without a record have no directory: with fewer partitions than before, no committed position is
        # found.
        counts = [internal_topic(name, settings, 1).partition_count]
    lost = LostTopic(
        name,
        topic.topic_id or uuid.uuid4(),
        max([on_disk, *counts]),
        {read.partition.partition: last_epoch(read) for read in topic.partitions},
        overrides,
    )
    return Rebuilt(lost, bool(described) or partition_count is not None, retention)


def _overrides(
    topic: SetAsideTopic, name: str, described: list[Mapping[str, str]], settings: BrokerSettings
) -> dict[str, str]:
    """The topic's own settings. Directories that disagree do not count: a change had not reached all of them."""
    if described and all(each == described[0] for each in described):
        return dict(described[0])
    if name in INTERNAL_TOPICS:
        return {key: value for key, value in internal_topic(name, settings, 1).configs.items() if value is not None}
    return {"cleanup.policy": "compact"} if any(read.cleaned_to is not None for read in topic.partitions) else {}


def last_epoch(read: Partition) -> int:
    """The last leader epoch in the log: from its checkpoint, or from its last batch."""
    epoch = 0
    if read.leader_epochs is not None and read.leader_epochs.entries:
        epoch = read.leader_epochs.entries[-1].epoch
    for segment in read.segments[-1:]:
        with open(segment.path(Suffix.LOG), "rb") as file:
            position = 0
            while len(head := _at(file.fileno(), position)) == HEADER_SIZE:
                header = read_header(head)
                if header.size < HEADER_SIZE:
                    break
                epoch = max(epoch, header.partition_leader_epoch)
                position += header.size
    return epoch


def _at(descriptor: int, position: int) -> bytes:
    return os.pread(descriptor, HEADER_SIZE, position)


def end_offset(read: Partition) -> int:
    return max((end for _, _, end in last_offsets(read)), default=read.start_offset)


def target(read: Partition, name: str) -> TopicPartition:
    return TopicPartition(name, read.partition.partition)
