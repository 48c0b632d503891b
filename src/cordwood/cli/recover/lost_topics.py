"""The directories that were set aside, grouped by their topics."""

import os
import uuid
from dataclasses import dataclass

from cordwood.cli.failure import ExitCode, Failure, near_names
from cordwood.cli.inspect.directory import DataDirectoryView, Partition, last_offsets
from cordwood.cluster.planner.put_back import LostTopic
from cordwood.cluster.planner.topics import internal_topic
from cordwood.model.broker_settings import BrokerSettings
from cordwood.model.identifiers import INTERNAL_TOPICS, TopicId, TopicPartition
from cordwood.records.batch import HEADER_SIZE, read_header
from cordwood.segments.names import Suffix
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
    def directories(self) -> list[str]:
        return [os.path.basename(read.directory) for read in self.partitions]


def topics_set_aside(data: DataDirectoryView) -> list[SetAsideTopic]:
    """The topics, by name and id. A directory without an id gets the id of the others of its name, if they agree."""
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


def lost_topic(topic: SetAsideTopic, name: str, partition_count: int, settings: BrokerSettings) -> LostTopic:
    """The topic to add to the metadata. `partition_count` is how many partitions are on disk already, at least."""
    overrides = dict(KEEP_ALL)
    if name in INTERNAL_TOPICS:
        created = internal_topic(name, settings)
        overrides = {key: value for key, value in created.configs.items() if value is not None}
        # The hash of a group or a transactional id, modulo this count, is its partition. Partitions without a record
        # have no directory: with fewer partitions than before, no committed position would be found.
        partition_count = max(partition_count, created.partition_count)
    elif any(read.cleaned_to is not None for read in topic.partitions):
        overrides["cleanup.policy"] = "compact"
    return LostTopic(
        name,
        topic.topic_id or uuid.uuid4(),
        max(partition_count, *(read.partition.partition + 1 for read in topic.partitions)),
        {read.partition.partition: last_epoch(read) for read in topic.partitions},
        overrides,
    )


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
