"""Files that survive a power cut: replaced as a whole, so that a reader finds the old content or the new.

For files that are not of a log: the files of a log go through its `Filesystem`, which the simulator plays. Every
function raises OSError.
"""

import os
from collections.abc import Callable
from pathlib import Path

Step = Callable[[str, str], None]


def _go_on(operation: str, path: str) -> None:
    """Lets the operation happen."""


def replace_file(
    path: str | Path, content: bytes, *, unfinished: str | None = None, mode: int | None = None, step: Step = _go_on
) -> None:
    """Replaces the file durably. If that fails, the old content stays.

    `unfinished`: the path of the new content until it is whole; without it `path` and `.tmp`. `mode`: the rights of the
    file; without it those that the umask gives. `step` is called before every operation on the disk.
    """
    unfinished = f"{path}.tmp" if unfinished is None else unfinished
    step("write", unfinished)
    with open(unfinished, "wb") as file:
        if mode is not None:
            os.fchmod(file.fileno(), mode)
        file.write(content)
        file.flush()
        step("sync", unfinished)
        os.fsync(file.fileno())
    step("rename", str(path))
    os.rename(unfinished, path)
    directory = os.path.dirname(path) or "."
    step("sync directory", directory)
    sync(directory)


def sync(path: str | Path) -> None:
    """Makes the content of a file durable, or the names of a directory's files."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
