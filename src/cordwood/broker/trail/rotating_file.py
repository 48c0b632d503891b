"""A file to which lines are appended. It is renamed when it has its size, and the oldest of its kind is removed.

The file may be renamed, or its directory deleted, by others: before each piece the name is looked at, and opened again
if it leads elsewhere. A piece that could not be written whole leaves nothing behind.
"""

from __future__ import annotations

import os
from contextlib import suppress
from typing import Final

_MODE: Final = 0o600
_DIRECTORY_MODE: Final = 0o700
_FLAGS: Final = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW


class RotatingFile:
    def __init__(self, path: str, max_bytes: int, kept: int) -> None:
        """`kept`: the number of renamed files, `PATH.1` the newest of them."""
        self.path = path
        self._max_bytes = max_bytes
        self._kept = kept
        self._fd = -1
        self._size = 0

    def append(self, lines: bytes) -> None:
        """Raises OSError, with nothing of the lines in the file."""
        self._reopen_if_moved()
        if self._size and self._size + len(lines) > self._max_bytes:
            self._rotate()
        written = 0
        try:
            while written < len(lines):
                written += os.write(self._fd, lines[written:])
        except OSError:
            # Half a line would spoil the next one.
            with suppress(OSError):
                os.ftruncate(self._fd, self._size)
            self.close()
            raise
        self._size += written

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def _reopen_if_moved(self) -> None:
        if self._fd >= 0:
            ours = os.fstat(self._fd)
            with suppress(OSError):
                there = os.stat(self.path)
                if (ours.st_dev, ours.st_ino) == (there.st_dev, there.st_ino):
                    return
            self.close()
        os.makedirs(os.path.dirname(self.path), _DIRECTORY_MODE, exist_ok=True)
        fd = os.open(self.path, _FLAGS, _MODE)
        try:
            size = os.fstat(fd).st_size
            if size and os.pread(fd, 1, size - 1) != b"\n":
                # A broker that was killed left a beginning of a line.
                size += os.write(fd, b"\n")
        except OSError:
            os.close(fd)
            raise
        self._fd, self._size = fd, size

    def _rotate(self) -> None:
        os.fsync(self._fd)
        self.close()
        for number in range(self._kept - 1, 0, -1):
            with suppress(FileNotFoundError):
                os.rename(f"{self.path}.{number}", f"{self.path}.{number + 1}")
        os.rename(self.path, f"{self.path}.1")
        self._reopen_if_moved()
