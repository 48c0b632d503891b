"""Keeps a broker out of a directory during an inspection, and refuses a directory that a broker is using."""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager

from cordwood.log.directory.data_directory import LOCK_FILE
from cordwood.model.failure import Failure


@contextmanager
def stopped(data_directory: str) -> Iterator[None]:
    """Holds a shared lock on the directory: inspections share it, and a broker's exclusive lock excludes them."""
    try:
        descriptor = os.open(os.path.join(data_directory, LOCK_FILE), os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        yield  # a copy of a directory, or one that no broker has opened
        return
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            raise Failure(
                "DATA_DIRECTORY_IN_USE",
                f"a broker is using {data_directory}",
                "stop the broker first, or use a copy: a sound file that is being written can look damaged",
            ) from None
        yield
    finally:
        os.close(descriptor)
