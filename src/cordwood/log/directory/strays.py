"""Judges the directories of partitions: opened, repaired, deleted, removed, set aside or left alone.

A directory is deleted only if its topic id has a tombstone: the metadata says that the topic was deleted. Every other
directory that the metadata does not know is set aside. Such a directory may be all that is left of acknowledged
records, after the metadata store was damaged or restored from a backup.

| the directory's id | the metadata | the directory |
| --- | --- | --- |
| sound | has this partition, with this id, on this broker | is opened |
| any | has this partition, on other brokers | is set aside |
| sound | has a tombstone of this id | is deleted |
| sound | has neither | is set aside |
| missing or damaged | has a topic of this name, no tombstone of one | is opened, its id written again; see `doubt` |
| missing or damaged | has anything else | is set aside |
| missing | has no such partition | is left alone if it is empty, or if other files than a log's are in it |
"""

from collections.abc import Callable, Iterable, Mapping
from enum import Enum
from typing import NamedTuple

from cordwood.log.opening.partition_files import holds_a_log
from cordwood.model.identifiers import TopicId, TopicPartition
from cordwood.segments.damaged import DamagedCheckpoint
from cordwood.segments.filesystem import Filesystem
from cordwood.segments.partition_metadata import FILE_NAME as METADATA_FILE
from cordwood.segments.partition_metadata import decode_partition_metadata, topic_id_text


class Fate(Enum):
    OPENED = "opened"
    REPAIRED = "opened, and its id written again"
    DELETED = "deleted"
    EMPTY = "removed, because nothing is in it"
    SET_ASIDE = "set aside"
    LEFT_ALONE = "left alone"


SERVED = frozenset({Fate.OPENED, Fate.REPAIRED})
"""The fates of directories whose logs are served."""


class Verdict(NamedTuple):
    fate: Fate
    reason: str = ""


_MOVED = Verdict(Fate.SET_ASIDE, "the partition moved to other brokers while this one was away")


class Known(NamedTuple):
    """The topics that the metadata knows."""

    topic_id: Callable[[TopicPartition], TopicId | None]
    """The topic id of a partition; None if the partition does not exist."""
    tombstones: Mapping[TopicId, str]
    """Deleted topics whose directories may still exist: id to name."""
    is_replica: Callable[[TopicPartition], bool] = lambda partition: True
    """Tells whether this broker is a replica of a partition that exists."""


def read_topic_id(filesystem: Filesystem, directory: str) -> TopicId | None:
    """The topic id in a partition's directory; None if it is missing or damaged."""
    try:
        return decode_partition_metadata(filesystem.read_bytes(f"{directory}/{METADATA_FILE}")).topic_id
    except (FileNotFoundError, DamagedCheckpoint):
        return None


def judge(
    filesystem: Filesystem, directory: str, partition: TopicPartition, topic_id: TopicId | None, known: Known
) -> Verdict:
    """The verdict on the directory of a partition. `topic_id` is the id in the directory."""
    expected = known.topic_id(partition)
    if topic_id is not None:
        if topic_id == expected:
            return Verdict(Fate.OPENED) if known.is_replica(partition) else _MOVED
        if topic_id in known.tombstones:
            return Verdict(Fate.DELETED, f"topic {known.tombstones[topic_id]} was deleted")
        told = "has no such partition" if expected is None else "has this partition with another topic id"
        return Verdict(Fate.SET_ASIDE, f"the metadata {told}, and no deletion of topic id {topic_id_text(topic_id)}")
    if expected is not None and not known.is_replica(partition):
        return _MOVED if filesystem.list(directory) else Verdict(Fate.EMPTY)
    if expected is not None:
        if not filesystem.list(directory):
            # A process was killed after it had made the directory; the first append goes on there.
            return Verdict(Fate.OPENED)
        if partition.topic not in known.tombstones.values():
            return Verdict(Fate.REPAIRED, f"{METADATA_FILE} in it is missing or damaged")
        return Verdict(
            Fate.SET_ASIDE,
            f"{METADATA_FILE} in it is missing or damaged, and another topic of this name was deleted just before",
        )
    if not filesystem.list(directory):
        # Another program's directory, or a mount point: it looks like the directory of a killed process.
        return Verdict(Fate.LEFT_ALONE, "it is empty")
    if not holds_a_log(filesystem, directory):
        return Verdict(Fate.LEFT_ALONE, "other files than a log's are in it")
    return Verdict(
        Fate.SET_ASIDE, f"the metadata has no such partition, and {METADATA_FILE} in it is missing or damaged"
    )


def doubt(partition: TopicPartition, lost: Iterable[TopicPartition], *, clean: bool, had_records: bool) -> str | None:
    """The reason why a directory without a topic id may be another partition's; None if its name can be believed.

    The saved recovery points are the second witness: `lost` are partitions that had records and have no directory,
    `had_records`: this one had some. After a clean stop they are complete.
    """
    renamed = [other for other in lost if other.topic == partition.topic]
    if renamed:
        return f"{renamed[0]}, which had records, has no directory: it may have been renamed"
    if clean and not had_records:
        return "the last stop knew of no records in it: it may be a copy"
    return None
