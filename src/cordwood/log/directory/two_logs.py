"""Refuses, before a start changes anything, two data directories that both have the log of one partition.

The right one of the two logs cannot be known. A start that noticed after its first change would have taken a directory
that does not belong here for one of the broker's, and would miss it from then on. A directory that was renamed within
its topic counts under its own name, which the start is going to give it back.
"""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import Protocol

from cordwood.log.directory.misnamed import straightened
from cordwood.log.directory.offsets.kept_offsets import KeptOffsets
from cordwood.log.directory.partitions_on_disk import PartitionsOnDisk
from cordwood.log.directory.strays import SERVED, Known, judge, read_topic_id
from cordwood.log.directory.topic_descriptions import TopicDescriptions
from cordwood.model.errors import StorageFailure
from cordwood.model.identifiers import TopicPartition
from cordwood.segments.filesystem import Filesystem
from cordwood.segments.partition_metadata import FILE_NAME as METADATA_FILE

MOST_NAMED = 50
"""Pairs of logs that a refusal names beside the first one."""


class Place(Protocol):
    """A data directory that is locked and not opened yet."""

    @property
    def filesystem(self) -> Filesystem: ...

    @property
    def path(self) -> str: ...

    def stopped_cleanly(self) -> bool: ...


def refuse_two_logs(places: Sequence[Place], known: Known) -> None:
    """Raises StorageFailure if two logs of one partition would be served. Changes nothing."""
    found = [straightened(place.filesystem, place.path) for place in places]
    counts = Counter(partition for directories in found for partition in directories)
    twice = {partition for partition, count in counts.items() if count > 1}
    if not twice:
        return
    logs: dict[TopicPartition, list[str]] = {}
    for place, directories in zip(places, found, strict=True):
        for partition in _served(place, directories, twice, known):
            directory = directories[partition]
            own = directory == f"{place.path}/{partition}"
            words = directory if own else f"{directory} (of {partition}, as its {METADATA_FILE} says)"
            logs.setdefault(partition, []).append(words)
    pairs = [(paths[0], paths[1]) for paths in logs.values() if len(paths) > 1]
    if pairs:
        raise two_logs(*pairs[0], others=pairs[1:])


def _served(
    place: Place, directories: Mapping[TopicPartition, str], among: Collection[TopicPartition], known: Known
) -> list[TopicPartition]:
    """The partitions of `among` whose logs in this directory a start would serve."""
    filesystem = place.filesystem
    offsets = KeptOffsets(filesystem, place.path)
    clean = not offsets.read() and place.stopped_cleanly()
    on_disk = PartitionsOnDisk(filesystem, place.path, offsets, TopicDescriptions(filesystem, place.path))
    for partition in directories:
        on_disk.add(partition)
    named = {partition for partition, directory in directories.items() if directory == on_disk.directory(partition)}
    verdicts = on_disk.strays(known, clean=clean, among=named.intersection(among))
    for partition in directories.keys() & {*among} - named:
        directory = directories[partition]
        verdicts[partition] = judge(filesystem, directory, partition, read_topic_id(filesystem, directory), known)
    return [
        partition
        for partition in sorted(directories.keys() & {*among})
        if (partition not in verdicts or verdicts[partition].fate in SERVED) and filesystem.list(directories[partition])
    ]


def two_logs(first: str, second: str, *, others: Sequence[tuple[str, str]] = ()) -> StorageFailure:
    """The refusal of two logs of one partition. `others`: more pairs, of other partitions."""
    also = f" The same is so of {'; of '.join(' and '.join(pair) for pair in others[:MOST_NAMED])}." if others else ""
    if len(others) > MOST_NAMED:
        also += f" And of {len(others) - MOST_NAMED} pairs more."
    return StorageFailure(
        f"{first} and {second} are logs of the same partition: which of them is right cannot be told. Nothing of them "
        "was changed. `cordwood inspect` shows the offsets in each; move the wrong one away, out of the data directory."
        f"{also}"
    )
