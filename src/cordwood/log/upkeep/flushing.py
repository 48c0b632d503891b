"""Makes appended batches durable in three steps: a ticket is taken in the loop, synced in any thread, booked in the
loop."""

from cordwood.log.parts.offsets import LogOffsets
from cordwood.log.parts.segments import LogSegments
from cordwood.model.errors import StorageFailure, SyncFailure
from cordwood.segments.filesystem import File


class FlushTicket:
    """Batches of one log up to `end_offset` that wait for the disk."""

    __slots__ = (
        "_path",
        "_segments",
        "_truncations",
        "directories",
        "directory",
        "end_offset",
        "files",
        "names_version",
        "offsets",
    )

    def __init__(self, segments: LogSegments, offsets: LogOffsets, files: list[File]) -> None:
        self.directory = segments.directory
        self._path = self.directory.path
        self.offsets = offsets
        """The offsets of the ticket's log, whose durable end `finish` moves."""
        self._segments = segments
        self.end_offset = offsets.end
        self.files = files
        self.directories = list(self.directory.unsynced_names)
        self.names_version = self.directory.names_version
        self._truncations = offsets.truncations

    @property
    def data_directory(self) -> str:
        """The data directory in which the ticket's files are, also when the log has moved to another one since."""
        return self._path.rpartition("/")[0]

    @property
    def void(self) -> bool:
        """True if the log was cut, moved or deleted since: the ticket's batches may not be the log's present ones."""
        return self._truncations != self.offsets.truncations

    def sync(self) -> None:
        """Waits for the disk, in any thread. A sync of the whole filesystem replaces this call."""
        try:
            for file in self.files:
                self._sync_file(file)
            for directory in self.directories:
                self.directory.filesystem.sync_directory(directory)
        except SyncFailure:
            raise
        except StorageFailure:
            # Files of a log that was cut, moved or deleted meanwhile may be gone, and no ack waits for them.
            if not self.void:
                raise

    def _sync_file(self, file: File) -> None:
        try:
            file.sync()
        except SyncFailure:
            raise
        except StorageFailure:
            # Retention may have removed the segment meanwhile: a checkpoint had made it durable before.
            if file in self.directory.unsynced_files or any(segment.file is file for segment in self._segments):
                raise

    def finish(self) -> None:
        """Books the synced ticket, in the loop: the durable end moves."""
        if self._truncations != self.offsets.truncations:
            return
        self.offsets.durable_end = max(self.offsets.durable_end, self.end_offset)
        self.directory.names_are_durable(self.names_version)


def begin_flush(segments: LogSegments, offsets: LogOffsets) -> FlushTicket | None:
    """The ticket that makes all appended batches durable; None if they are."""
    durable_end = offsets.durable_end
    if durable_end >= offsets.end and not segments.directory.unsynced_names:
        return None
    files = list(segments.directory.unsynced_files)
    for segment in reversed(segments.all):
        files.append(segment.file)
        if segment.base_offset <= durable_end:
            break
    return FlushTicket(segments, offsets, files)
