"""Keeps the topic id of a log's directory on disk: `partition.metadata` exists, readable and durable.

Without this file a new topic of the same name would get the old topic's records. A killed process may leave the file
out, and a power cut after a kill may empty it: opening the log, or beginning its first segment, writes it again.
"""

from contextlib import suppress
from typing import TYPE_CHECKING

from cordwood.log.checkpoint import remove_if_there
from cordwood.model.errors import DiskFull
from cordwood.segments.damaged import DamagedCheckpoint
from cordwood.segments.filesystem import Filesystem
from cordwood.segments.partition_metadata import FILE_NAME as METADATA_FILE
from cordwood.segments.partition_metadata import PartitionMetadata, decode_partition_metadata, encode_partition_metadata

if TYPE_CHECKING:
    from cordwood.log.log import Log


def write_topic_id(log: "Log") -> None:
    """Writes the file before the first segment. The next flush makes it durable, also an existing file: a killed
    process may have left it."""
    content = _content(log)
    if content is None:
        return
    path = _path(log)
    readable = _readable(log.filesystem, path)
    file = log.filesystem.open(path, create=True)
    if not readable:
        file.truncate(0)
        file.append(content)
    log.unsynced_files = (*log.unsynced_files, file)


def restore_topic_id(log: "Log") -> None:
    """Writes the file anew, durably, if it is missing or damaged."""
    path = _path(log)
    content = _content(log)
    if content is None or _readable(log.filesystem, path):
        return
    try:
        log.filesystem.replace(path, content)
    except DiskFull:
        # A full disk must not keep readers from reading the log. A missing file is noticed at every opening, even after
        # a clean stop.
        remove_if_there(log.filesystem, path)


def sync_topic_id(log: "Log") -> None:
    """Syncs an existing file, which a killed process may have left in the page cache only."""
    with suppress(FileNotFoundError):
        file = log.filesystem.open(_path(log))
        file.sync()
        file.close()


def _content(log: "Log") -> bytes | None:
    """The content of the file; None for a log without a topic id."""
    if log.topic_id is None:
        return None
    return encode_partition_metadata(
        PartitionMetadata(log.topic_id, log.describe_topic(log.topic_id), log.partition.partition)
    )


def _path(log: "Log") -> str:
    return f"{log.directory}/{METADATA_FILE}"


def _readable(filesystem: Filesystem, path: str) -> bool:
    try:
        decode_partition_metadata(filesystem.read_bytes(path))
    except (FileNotFoundError, DamagedCheckpoint):
        return False
    return True
