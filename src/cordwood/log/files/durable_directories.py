"""Makes a data directory that a power cut does not remove."""

from cordwood.model.errors import StorageFailure, SyncFailure
from cordwood.segments.filesystem import Filesystem


def make_directory_durably(filesystem: Filesystem, path: str, *, begun: bool) -> None:
    """Makes the directory, and makes every name on its path durable.

    Without `begun` existing names are synced, too: an earlier process may have made them and been killed. Parent
    directories that this process may not open are left to their owner.
    """
    levels = []
    level = path
    while level:
        levels.append((level, filesystem.exists(level)))
        level = level.rpartition("/")[0]
    filesystem.make_directory(path)
    for level, was_there in levels:
        parent = level.rpartition("/")[0] or ("/" if level.startswith("/") else ".")
        if not was_there:
            filesystem.sync_directory(parent)
        elif not begun:
            try:
                filesystem.sync_directory(parent)
            except SyncFailure:
                raise
            except StorageFailure:
                return
