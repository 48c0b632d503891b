"""The directory of one partition: its path, its topic, and the names in it that the next flush must make durable.

`partition.metadata` in it has the topic's id. Without this file a new topic of the same name would get the old topic's
records. A killed process may leave the file out, and a power cut after a kill may empty it: opening the log, or
beginning its first segment, writes it again.
"""

from collections.abc import Callable
from contextlib import suppress

from cordwood.model.errors import DiskFull, StorageFailure
from cordwood.model.identifiers import TopicId, TopicPartition
from cordwood.segments.damaged import DamagedCheckpoint
from cordwood.segments.filesystem import File, Filesystem, remove_if_there
from cordwood.segments.partition_metadata import (
    FILE_NAME,
    PartitionMetadata,
    TopicDescription,
    decode_partition_metadata,
    encode_partition_metadata,
)

DescribeTopic = Callable[[TopicId], TopicDescription | None]


class PartitionDirectory:
    __slots__ = (
        "describe_topic",
        "filesystem",
        "names_version",
        "partition",
        "path",
        "topic_id",
        "unsynced_files",
        "unsynced_names",
    )

    def __init__(
        self,
        filesystem: Filesystem,
        path: str,
        partition: TopicPartition,
        topic_id: TopicId | None,
        describe_topic: DescribeTopic,
    ) -> None:
        self.filesystem = filesystem
        self.path = path
        self.partition = partition
        self.topic_id = topic_id
        self.describe_topic = describe_topic
        self.unsynced_names: tuple[str, ...] = ()
        """Directories with new names: this one, and its parent when this one is new."""
        self.unsynced_files: tuple[File, ...] = ()
        """Files beside the segments that the next flush must make durable."""
        self.names_version = 0
        """Rises with every new name: a flush covers the names up to the version that its ticket has."""

    @property
    def parent(self) -> str:
        return self.path.rpartition("/")[0]

    def make(self) -> bool:
        """Makes the directory, with its topic id, before the first segment. True if there was none."""
        filesystem = self.filesystem
        # The name of an existing directory may not be durable yet: a killed process may have made it.
        self.note_new_names(self.parent)
        if filesystem.exists(self.path):
            self._write_topic_id()
            return False
        filesystem.make_directory(self.path)
        try:
            self._write_topic_id()
        except StorageFailure:
            # Without space for this file there is none for a batch: the next append begins anew.
            filesystem.remove_tree(self.path)
            raise
        return True

    def note_new_names(self, path: str) -> None:
        """Notes a directory with new names, which the next flush must make durable."""
        self.names_version += 1
        if path not in self.unsynced_names:
            self.unsynced_names = (*self.unsynced_names, path)

    def names_are_durable(self, version: int) -> None:
        """Notes that a flush has synced the names and files of this version, unless there are newer ones."""
        if version == self.names_version:
            self.unsynced_names = ()
            self.close_unsynced_files()
            self.unsynced_files = ()

    def close_unsynced_files(self) -> None:
        for file in self.unsynced_files:
            file.close()

    def relocate(self, filesystem: Filesystem, path: str, describe_topic: DescribeTopic) -> None:
        """Goes on as another directory, in which everything is durable."""
        self.close_unsynced_files()
        self.filesystem, self.path, self.describe_topic = filesystem, path, describe_topic
        self.unsynced_names, self.unsynced_files = (), ()
        self.names_version += 1

    def sync_names(self) -> None:
        """Makes the names in this directory durable, waiting for the disk."""
        self.filesystem.sync_directory(self.path)

    # The topic's id

    def _write_topic_id(self) -> None:
        """Writes the file with the topic id. The next flush makes it durable, also an existing file: a killed process
        may have left it."""
        content = self._topic_id_content()
        if content is None:
            return
        readable = self._topic_id_readable()
        file = self.filesystem.open(self._topic_id_path, create=True)
        if not readable:
            file.truncate(0)
            file.append(content)
        self.unsynced_files = (*self.unsynced_files, file)

    def restore_topic_id(self) -> None:
        """Writes the file with the topic id anew, durably, if it is missing or damaged."""
        content = self._topic_id_content()
        if content is None or self._topic_id_readable():
            return
        try:
            self.filesystem.replace(self._topic_id_path, content)
        except DiskFull:
            # A full disk must not keep readers from reading the log. A missing file is noticed at every opening, even
            # after a clean stop.
            remove_if_there(self.filesystem, self._topic_id_path)

    def sync_topic_id(self) -> None:
        """Syncs the file with the topic id, which a killed process may have left in the page cache only."""
        with suppress(FileNotFoundError):
            file = self.filesystem.open(self._topic_id_path)
            file.sync()
            file.close()

    def _topic_id_content(self) -> bytes | None:
        """The content of the file; None for a log without a topic id."""
        if self.topic_id is None:
            return None
        return encode_partition_metadata(
            PartitionMetadata(self.topic_id, self.describe_topic(self.topic_id), self.partition.partition)
        )

    @property
    def _topic_id_path(self) -> str:
        return f"{self.path}/{FILE_NAME}"

    def _topic_id_readable(self) -> bool:
        try:
            decode_partition_metadata(self.filesystem.read_bytes(self._topic_id_path))
        except (FileNotFoundError, DamagedCheckpoint):
            return False
        return True
