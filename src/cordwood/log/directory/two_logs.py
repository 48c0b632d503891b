"""Refuses, before a start changes anything, two data directories that both have the log of one partition.

Which of the two logs is right cannot be told. A start that noticed after its first change would have taken a directory
that does not belong here for one of the broker's, and would miss it from then on.
"""

from collections import Counter
from collections.abc import Collection, Sequence
from typing import Protocol

from cordwood.log.directory.kept_offsets import KeptOffsets
from cordwood.log.directory.misnamed import is_misnamed
from cordwood.log.directory.partitions_on_disk import PartitionsOnDisk, partitions_in
from cordwood.log.directory.strays import SERVED, Known
from cordwood.log.directory.topic_descriptions import TopicDescriptions
from cordwood.model.errors import StorageFailure
from cordwood.model.identifiers import TopicPartition
from cordwood.segments.filesystem import Filesystem


class Place(Protocol):
    """A data directory that is locked and not opened yet."""

    @property
    def filesystem(self) -> Filesystem: ...

    @property
    def path(self) -> str: ...

    def stopped_cleanly(self) -> bool: ...


def refuse_two_logs(places: Sequence[Place], known: Known) -> None:
    """Raises StorageFailure if two logs of one partition would be served. Changes nothing."""
    found = [partitions_in(place.filesystem, place.path) for place in places]
    counts = Counter(partition for partitions in found for partition in partitions)
    twice = {partition for partition, count in counts.items() if count > 1}
    if not twice:
        return
    logs: dict[TopicPartition, list[str]] = {}
    for place, partitions in zip(places, found, strict=True):
        for partition in _served(place, partitions, twice, known):
            logs.setdefault(partition, []).append(f"{place.path}/{partition}")
    for paths in logs.values():
        if len(paths) > 1:
            raise two_logs(*paths[:2])


def _served(
    place: Place, partitions: Collection[TopicPartition], among: Collection[TopicPartition], known: Known
) -> list[TopicPartition]:
    """The partitions of `among` whose logs in this directory a start would serve."""
    filesystem = place.filesystem
    offsets = KeptOffsets(filesystem, place.path)
    clean = not offsets.read() and place.stopped_cleanly()
    on_disk = PartitionsOnDisk(filesystem, place.path, offsets, TopicDescriptions(filesystem, place.path))
    for partition in partitions:
        on_disk.add(partition)
    verdicts = on_disk.strays(known, clean=clean, among=among)
    return [
        partition
        for partition in sorted({*partitions} & {*among})
        if (partition not in verdicts or verdicts[partition].fate in SERVED)
        and filesystem.list(on_disk.directory(partition))
        and not is_misnamed(filesystem, place.path, partition)
    ]


def two_logs(first: str, second: str) -> StorageFailure:
    return StorageFailure(
        f"{first} and {second} are logs of the same partition: which of them is right cannot be told. Nothing of them "
        "was changed. `cordwood inspect` shows the offsets in each; move the wrong one away, out of the data directory"
    )
