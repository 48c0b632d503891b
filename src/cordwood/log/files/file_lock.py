"""A lock between processes, as a file. The lock ends with its process, however that ends."""

import fcntl
import os

from cordwood.model.errors import StorageFailure


class FileLock:
    """A lock file, held until released or until the process ends."""

    def __init__(self, path: str) -> None:
        try:
            self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError as error:
            raise StorageFailure(f"cannot open {path}: {error.strerror}") from error
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(self._descriptor)
            raise StorageFailure(
                f"{path} is locked: this data directory is in use by another broker; stop it first"
            ) from error

    def release(self) -> None:
        if self._descriptor >= 0:
            # A process that was forked meanwhile holds the descriptor, too: closing it here would not release the lock.
            fcntl.flock(self._descriptor, fcntl.LOCK_UN)
            os.close(self._descriptor)
            self._descriptor = -1
