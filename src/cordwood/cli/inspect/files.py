"""Files that can only be read: inspecting a log must never be what damages it."""

import os

from cordwood.records.batch import Buffer


class ReadOnlyFile:
    """A file for `SegmentScan` and its like. Writing to it is our own fault, so it is an assertion."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        self.size = os.fstat(self._descriptor).st_size

    def read(self, position: int, length: int) -> bytes:
        return os.pread(self._descriptor, length, position)

    def close(self) -> None:
        os.close(self._descriptor)

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

    def sync(self) -> None:
        raise AssertionError(f"{self.path} is only inspected")
