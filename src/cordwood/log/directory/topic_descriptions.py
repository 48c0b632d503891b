"""Keeps `partition.metadata` of every partition on disk up to date with the topic's partition count and settings.

A new partition's file has them from its first append on (partition_directory.py). When partitions are added or settings
change, the files follow with the next checkpoint, in its thread. A topic that was deleted meanwhile, whose name a new
topic may have by then, is not described any more: the lock keeps a file from going into the new topic's directory.
"""

import threading
from collections.abc import Callable

from cordwood.log.directory.in_steps import Steps
from cordwood.model.errors import DiskFull, StorageFailure, SyncFailure
from cordwood.model.identifiers import TopicId, TopicPartition
from cordwood.segments.damaged import DamagedCheckpoint
from cordwood.segments.filesystem import Filesystem
from cordwood.segments.partition_metadata import (
    FILE_NAME,
    PartitionMetadata,
    TopicDescription,
    decode_partition_metadata,
    encode_partition_metadata,
)

COMPARED_IN_A_STEP = 500

_DRAFT = f"{FILE_NAME}.draft"


class TopicDescriptions:
    def __init__(self, filesystem: Filesystem, path: str) -> None:
        self._filesystem = filesystem
        self._path = path
        self._wanted: dict[TopicId, TopicDescription] = {}
        self._on_disk: dict[TopicPartition, PartitionMetadata] = {}
        self._changed = False
        self._lock = threading.Lock()

    def read(self, partition: TopicPartition) -> TopicId | None:
        """The topic id in a partition's directory; None if it is missing or damaged."""
        try:
            data = self._filesystem.read_bytes(f"{self._path}/{partition}/{FILE_NAME}")
            self._on_disk[partition] = decode_partition_metadata(data)
        except (FileNotFoundError, DamagedCheckpoint):
            return None
        self._changed = True
        return self._on_disk[partition].topic_id

    def describe(self, topic_id: TopicId, description: TopicDescription | None) -> None:
        """Sets the description of a topic, in the loop. None: the topic was deleted."""
        if description is None:
            self._wanted.pop(topic_id, None)
        elif self._wanted.get(topic_id) != description:
            self._wanted[topic_id] = description
            self._changed = True

    def of(self, topic_id: TopicId) -> TopicDescription | None:
        return self._wanted.get(topic_id)

    def opened(self, partition: TopicPartition, topic_id: TopicId | None) -> None:
        """Notes, in the loop, that a partition has a log. Its first append writes the file if there is none."""
        if topic_id is not None and partition not in self._on_disk:
            self._on_disk[partition] = PartitionMetadata(topic_id, self._wanted.get(topic_id), partition.partition)

    def forget(self, partition: TopicPartition) -> None:
        """Forgets a partition, in the loop: its directory is removed next, and its name may be reused."""
        with self._lock:
            self._on_disk.pop(partition, None)

    def begin_save_in_steps(self) -> Steps[Callable[[], None]]:
        """Notes, in the loop, which files are out of date. Returns the function that writes them, in any thread."""
        if not self._changed:
            return lambda: None
        self._changed = False
        stale: dict[TopicPartition, PartitionMetadata] = {}
        for number, (partition, found) in enumerate(list(self._on_disk.items()), 1):
            description = self._wanted.get(found.topic_id)
            if description is not None:
                wanted = PartitionMetadata(found.topic_id, description, partition.partition)
                if wanted != found:
                    stale[partition] = wanted
            if number % COMPARED_IN_A_STEP == 0:
                yield

        def write() -> None:
            try:
                for partition, metadata in sorted(stale.items()):
                    self._write(partition, metadata)
            except DiskFull:
                # The next checkpoint tries again. Until then the files have the former description.
                self._changed = True

        return write

    def _write(self, partition: TopicPartition, metadata: PartitionMetadata) -> None:
        directory = f"{self._path}/{partition}"
        if not self._filesystem.exists(f"{directory}/{FILE_NAME}"):
            # The first append writes the file.
            return
        draft = f"{self._path}/{_DRAFT}"
        self._filesystem.replace(draft, encode_partition_metadata(metadata))
        with self._lock:
            found = self._on_disk.get(partition)
            if found is None or found.topic_id != metadata.topic_id:
                self._filesystem.remove(draft)
                return
            self._filesystem.rename(draft, f"{directory}/{FILE_NAME}")
            self._on_disk[partition] = metadata
        try:
            self._filesystem.sync_directory(directory)
        except SyncFailure:
            raise
        except (StorageFailure, FileNotFoundError):
            # The partition was deleted meanwhile.
            return
