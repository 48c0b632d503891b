"""Makes appended batches durable in three steps: a ticket is taken in the loop, synced in any thread, booked in the
loop."""

from typing import TYPE_CHECKING

from cordwood.model.errors import StorageFailure, SyncFailure
from cordwood.segments.filesystem import File

if TYPE_CHECKING:
    from cordwood.log.log import Log


class FlushTicket:
    """Batches of one log up to `end_offset` that wait for the disk."""

    __slots__ = ("directories", "end_offset", "files", "log", "names_version", "truncations")

    def __init__(self, log: "Log", files: list[File]) -> None:
        self.log = log
        self.end_offset = log.log_end_offset
        self.files = files
        self.directories = list(log.unsynced_directories)
        self.names_version = log.names_version
        self.truncations = log.truncations

    def sync(self) -> None:
        """Waits for the disk, in any thread. A sync of the whole filesystem replaces this call."""
        try:
            for file in self.files:
                self._sync_file(file)
            for directory in self.directories:
                self.log.filesystem.sync_directory(directory)
        except SyncFailure:
            raise
        except StorageFailure:
            # Files of a log that was cut or deleted meanwhile may be gone, and no ack waits for them.
            if self.truncations == self.log.truncations:
                raise

    def _sync_file(self, file: File) -> None:
        try:
            file.sync()
        except SyncFailure:
            raise
        except StorageFailure:
            # Retention may have removed the segment meanwhile, which a checkpoint had made durable before.
            log = self.log
            if file in log.unsynced_files or any(segment.file is file for segment in log.segments):
                raise


def begin_flush(log: "Log") -> FlushTicket | None:
    """The ticket that makes all appended batches durable; None if they are."""
    durable_end_offset = log.durable_end_offset
    if durable_end_offset >= log.log_end_offset and not log.unsynced_directories:
        return None
    files = list(log.unsynced_files)
    for segment in reversed(log.segments):
        files.append(segment.file)
        if segment.base_offset <= durable_end_offset:
            break
    return FlushTicket(log, files)


def finish_flush(log: "Log", ticket: FlushTicket) -> None:
    """Books a synced ticket: the durable end moves."""
    if ticket.truncations != log.truncations:
        # The log was cut meanwhile: the synced batches may not be the log's present batches.
        return
    log.durable_end_offset = max(log.durable_end_offset, ticket.end_offset)
    if ticket.names_version == log.names_version:
        log.unsynced_directories = ()
        for file in log.unsynced_files:
            file.close()
        log.unsynced_files = ()
