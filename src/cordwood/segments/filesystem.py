"""The seam to the disk: everything that the log asks of a filesystem.

Only its implementations in log/files touch real files: os_filesystem.py (the machine's disk), memory_filesystem.py
(embedded brokers) and crashing_filesystem.py (a disk that forgets, tears and fails, for tests). Paths are plain strings
with "/" between the parts. Nothing written is durable before `sync` (content) and `sync_directory` (names).
"""

from contextlib import suppress
from typing import Protocol, runtime_checkable

from cordwood.records.batch import Buffer


class Readable(Protocol):
    """The part of a file that a scan needs."""

    path: str

    @property
    def size(self) -> int: ...

    def read(self, position: int, length: int) -> bytes: ...


class File(Protocol):
    """One file. Its handle may be closed and opened behind the scenes."""

    path: str

    @property
    def size(self) -> int: ...

    def append(self, data: Buffer) -> None:
        """Writes at the end, all or nothing: without space the file is cut back and DiskFull raised."""

    def read(self, position: int, length: int) -> bytes:
        """Reads these bytes; may block; short only at the end of the file."""

    def read_now(self, position: int, into: memoryview) -> int:
        """Fills `into` from memory without ever blocking; returns the number of bytes, 0 if that is not possible."""

    def send_now(self, socket: int, position: int, length: int) -> int:
        """Sends to a non-blocking socket, inside the kernel, without ever waiting for the disk; returns the number of
        bytes sent.

        0: not in memory, or not supported: read it. An OSError is the socket's: BlockingIOError if it is full.
        """

    def read_cold(self, position: int, into: memoryview) -> int:
        """Fills `into`, blocking; drops from the page cache only the pages that this read brought in."""

    def truncate(self, size: int) -> None:
        """Cuts the file to this size. Never makes it longer."""

    def reserve(self, total_bytes: int) -> None:
        """Asks the disk for room up to this size, without making the file longer; room beyond that is given back.

        A disk that cannot reserve, or has not enough room, is no failure: the next append finds out.
        """

    def sync(self) -> None:
        """Makes the content durable (fdatasync). Raises SyncFailure. May be called from any thread."""

    def forget_cached(self) -> None:
        """Drops synced bytes from the page cache, so that the next read shows what the disk holds."""

    def close(self) -> None:
        """Gives back the handle. A later call opens the file again."""


class Filesystem(Protocol):
    """A tree of files. Failures of the disk are StorageFailure; a missing file is FileNotFoundError."""

    def open(self, path: str, *, create: bool = False) -> File:
        """Opens the file at this path; with `create` an empty one is made if there is none."""

    def exists(self, path: str) -> bool: ...

    def list_directories(self, directory: str) -> list[str]:
        """The names of the directories in a directory, sorted; none if there is no such directory."""

    def list(self, directory: str) -> list[str]:
        """The names in a directory, sorted; none if there is no such directory."""

    def make_directory(self, path: str) -> None:
        """Makes the directory and its parents, but never a data directory that is gone. Durable once the caller has
        synced the parent directory."""

    def check_present(self, path: str) -> None:
        """Raises SyncFailure if the data directory in use at this path is gone or was replaced by another one."""

    def rename(self, old: str, new: str) -> None:
        """Renames a file or directory, replacing one of the new name. Durable once the directory is synced."""

    def remove(self, path: str) -> None: ...

    def remove_tree(self, path: str) -> None:
        """Removes a directory and all in it; does nothing if there is no such directory."""

    def sync_directory(self, path: str) -> None:
        """Makes the names in a directory durable. Raises SyncFailure."""

    def sync_everything(self) -> None:
        """Makes all content and names of this filesystem durable at once (syncfs). Raises SyncFailure."""

    def read_bytes(self, path: str) -> bytes:
        """The whole content of a small file."""

    def replace(self, path: str, data: bytes) -> None:
        """Gives a file this content, atomically and durably: temporary file, fsync, rename, fsync of the directory."""

    def free_bytes(self) -> tuple[int, int]:
        """The size of the disk and its free bytes."""


@runtime_checkable
class KnowsBoot(Protocol):
    """A filesystem of a machine that can lose its power."""

    def boot_number(self) -> int | None:
        """A number of the machine's boot: while it stays the same, no write is lost, synced or not. None: unknown."""


def read_if_there(filesystem: Filesystem, path: str) -> bytes | None:
    """The content of a small file; None if there is no such file."""
    try:
        return filesystem.read_bytes(path)
    except FileNotFoundError:
        return None


def remove_if_there(filesystem: Filesystem, path: str) -> None:
    with suppress(FileNotFoundError):
        filesystem.remove(path)
