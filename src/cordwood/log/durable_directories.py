"""Making a data directory so that a power cut does not take it, and all that is in it."""

from cordwood.model.errors import StorageFailure, SyncFailure
from cordwood.segments.filesystem import Filesystem


def make_directory_durably(filesystem: Filesystem, path: str, *, begun: bool) -> None:
    """Makes the directory, and every name on the way to it durable.

    Not `begun`: also names that are there already, because an earlier process may have made them and been killed.
    Directories above that this process may not open are somebody else's work.
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
