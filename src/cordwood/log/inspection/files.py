"""Files that can only be read: an inspection must never damage a log."""

import os

from cordwood.records.batch import Buffer
from cordwood.segments.damaged import DamagedFile


def read_whole(path: str) -> bytes:
    """The content of a file beside the log. Raises FileNotFoundError, or DamagedFile if it cannot be read."""
    try:
        with open(path, "rb") as file:
            return file.read()
    except FileNotFoundError:
        raise
    except OSError as error:
        raise DamagedFile(f"cannot be read: {error.strerror}") from error


class ReadOnlyFile:
    """A read-only file for `SegmentScan` and other scans. A write is our own fault, so it is an assertion."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._file = open(path, "rb", buffering=0)  # noqa: SIM115 closed by `close`; unlike os.open no directory
        self._descriptor = self._file.fileno()
        self.size = os.fstat(self._descriptor).st_size

    def read(self, position: int, length: int) -> bytes:
        return os.pread(self._descriptor, length, position)

    def close(self) -> None:
        self._file.close()

    def __enter__(self) -> "ReadOnlyFile":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def read_now(self, position: int, into: memoryview) -> int:
        return 0

    def send_now(self, socket: int, position: int, length: int) -> int:
        return 0

    def read_cold(self, position: int, into: memoryview) -> int:
        return os.preadv(self._descriptor, [into], position)

    def append(self, data: Buffer) -> None:
        raise AssertionError(f"{self.path} is only inspected")

    def truncate(self, size: int) -> None:
        raise AssertionError(f"{self.path} is only inspected")

    def reserve(self, total_bytes: int) -> None:
        raise AssertionError(f"{self.path} is only inspected")

    def sync(self) -> None:
        raise AssertionError(f"{self.path} is only inspected")

    def forget_cached(self) -> None:
        raise AssertionError(f"{self.path} is only inspected")
