"""Which topic a log's directory belongs to, kept on disk: `partition.metadata` is there, readable and durable.

Without it a new topic of the same name would be given the old one's records. A killed process may leave it out, and a
power cut after a kill may empty it: whoever opens the log, or makes its first segment, puts it right.
"""

from contextlib import suppress
from typing import TYPE_CHECKING

from cordwood.log.checkpoint import remove_if_there
from cordwood.model.errors import DiskFull
from cordwood.segments.damaged import DamagedCheckpoint
from cordwood.segments.filesystem import Filesystem
from cordwood.segments.partition_metadata import FILE_NAME as METADATA_FILE
from cordwood.segments.partition_metadata import decode_partition_metadata, encode_partition_metadata

if TYPE_CHECKING:
    from cordwood.log.log import Log


def write_topic_id(log: "Log") -> None:
    """Before the first segment. Durable with the next flush, also one that is there: it may be a killed process's."""
    if log.topic_id is None:
        return
    path = _path(log)
    readable = _readable(log.filesystem, path)
    file = log.filesystem.open(path, create=True)
    if not readable:
        file.truncate(0)
        file.append(encode_partition_metadata(log.topic_id))
    log.unsynced_files = (*log.unsynced_files, file)


def restore_topic_id(log: "Log") -> None:
    """Writes it anew, durably, if it is missing or cannot be read."""
    path = _path(log)
    if log.topic_id is None or _readable(log.filesystem, path):
        return
    try:
        log.filesystem.replace(path, encode_partition_metadata(log.topic_id))
    except DiskFull:
        # That keeps nobody from reading the log. A missing one is seen at every opening, also after a clean stop.
        remove_if_there(log.filesystem, path)


def sync_topic_id(log: "Log") -> None:
    """What is there may be a killed process's and only in memory: now it is durable, if its name is."""
    with suppress(FileNotFoundError):
        file = log.filesystem.open(_path(log))
        file.sync()
        file.close()


def _path(log: "Log") -> str:
    return f"{log.directory}/{METADATA_FILE}"


def _readable(filesystem: Filesystem, path: str) -> bool:
    try:
        decode_partition_metadata(filesystem.read_bytes(path))
    except (FileNotFoundError, DamagedCheckpoint):
        return False
    return True
