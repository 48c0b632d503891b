"""Tells how to write `meta.properties` again for a data directory that lost it and still has logs of its broker.

Directories of other programs may have names like those of partitions, also on a disk that replaced a lost one. Taken
for the broker's, such a disk would begin the partitions of the lost one anew, empty. So a log counts only if its topic
is in the metadata, and partitions that are in no directory are named.
"""

from collections.abc import Iterable, Mapping

from cordwood.broker.storage.accepted_losses import in_words
from cordwood.cluster.metadata.rows import TOPIC_NAMES, TOPICS, decode_topic
from cordwood.cluster.stores.integrity import values_at_rest
from cordwood.cluster.stores.interface import StoreFailure
from cordwood.log.directory.data_directory import CLEAN_SHUTDOWN_FILE
from cordwood.log.directory.directory_set import Place
from cordwood.log.directory.identity import PROPERTIES_FILE, Identity, writing_command
from cordwood.log.directory.offsets.kept_offsets import KeptOffsets
from cordwood.log.directory.partitions_on_disk import partitions_in
from cordwood.log.directory.strays import read_topic_id
from cordwood.log.opening.partition_files import holds_a_log
from cordwood.model.identifiers import INTERNAL_TOPICS, TopicId, TopicPartition

Known = Mapping[TopicPartition, TopicId]
"""The topic ids of all partitions in the metadata."""


def known_partitions(store_path: str) -> Known | None:
    """The partitions in a store that is not open; None if there is none, or if it is damaged. Changes nothing."""
    try:
        values = values_at_rest(store_path)
    except StoreFailure:
        return None
    topics = {key: decode_topic(key, value) for key, value in values.items() if key.startswith(TOPICS)}
    known = {
        TopicPartition(topic.name, number): TopicId(key.removeprefix(TOPICS))
        for key, topic in topics.items()
        if values.get(f"{TOPIC_NAMES}{topic.name}", b"").decode() == key.removeprefix(TOPICS)
        for number in range(topic.partition_count)
    }
    return known if values else None


def nowhere_in(places: Iterable[Place], known: Known) -> list[TopicPartition]:
    """The partitions of the metadata that have no log in these directories."""
    here = {partition for place in places for partition in _logs_in(place, known)}
    return _ordered(known.keys() - here)


def _ordered(partitions: Iterable[TopicPartition]) -> list[TopicPartition]:
    """Sorts partitions, those of internal topics last: most of these never have records."""
    return sorted(partitions, key=lambda each: (each.topic in INTERNAL_TOPICS, each))


def _logs_in(place: Place, known: Known | None) -> list[TopicPartition]:
    """The partitions of the broker that have files of a log in a directory."""
    found = []
    for partition in sorted(partitions_in(place.filesystem, place.path)):
        directory = f"{place.path}/{partition}"
        if not place.filesystem.list(directory) or not holds_a_log(place.filesystem, directory):
            continue
        topic_id = read_topic_id(place.filesystem, directory)
        if known is None or (partition in known and topic_id in (None, known[partition])):
            found.append(partition)
    return found


def lost_properties(
    place: Place, directory_id: str, home: Place, others: Iterable[Place], known: Known | None
) -> str | None:
    """The way to write the lost properties of a directory that the home knows; None if it has no log of the broker, or
    has properties. `others`: all other existing directories; `known`: None without metadata."""
    owner = home.identity()
    if owner is None or place.identity() is not None:
        return None
    logs = _logs_in(place, known)
    if not logs:
        return None
    own = Identity(
        owner.cluster_id, owner.node_id, directory_id=directory_id, home_id=owner.directory_id, home_path=home.path
    )
    command = f"`{writing_command(place.path, own)}`"
    words = (
        f"{place.path} has the logs of {in_words(list(map(str, logs)))}, and no {PROPERTIES_FILE}, which says that it "
        f"is the directory {directory_id} of this broker"
    )
    if known is None:
        return f"{words}. Which partitions were there besides cannot be told without metadata. {command} writes it"
    absent = _perhaps_lost(place, nowhere_in((place, *others), known))
    if not absent:
        return f"{words}. Its records are not lost. Write the file again: {command}"
    names = in_words(list(map(str, absent)))
    return (
        f"{words}. {names}: in none of the given directories. They never had records, or their records are on another "
        f"disk, or lost: if the disk at {place.path} was replaced, mount the former one. To serve the logs that are "
        f"there, write the file again: {command}. Then {names} begin anew, empty"
    )


def _perhaps_lost(place: Place, nowhere: list[TopicPartition]) -> list[TopicPartition]:
    """The absent partitions that may have had records in a directory. After a clean stop its checkpoint names all with
    records. A disk that replaced another one has neither the checkpoint nor the mark of a clean stop."""
    offsets = KeptOffsets(place.filesystem, place.path)
    offsets.read()
    if offsets.recovery_points_lost or not place.filesystem.exists(f"{place.path}/{CLEAN_SHUTDOWN_FILE}"):
        return nowhere
    return _ordered(offsets.partitions().intersection(nowhere))
