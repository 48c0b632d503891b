"""Files of logs whose records could not be sent: for a while their records are refused to readers.

An answer to a fetch says its size before the records of all its partitions are read, so its connection is closed when
one file cannot be read. A follower asks for many partitions in one request, and would ask for that file again with each
request: a single bad sector would keep every partition of the leader from its followers.
"""

from cordwood.model.errors import StorageFailure
from cordwood.node.loop.loop import Loop
from cordwood.node.loop.reports import Reports

REFUSED_MS = 5_000
"""The time for which records of a file are refused. A new try costs one more connection."""
MOST_FILES = 10_000


class UnreadableFiles:
    __slots__ = ("_loop", "_reports", "_until_ms")

    def __init__(self, loop: Loop, reports: Reports) -> None:
        self._loop = loop
        self._reports = reports
        self._until_ms: dict[str, int] = {}
        """The time at which each file is tried again, on the boot clock."""

    def __bool__(self) -> bool:
        return bool(self._until_ms)

    def found(self, path: str, failure: StorageFailure) -> None:
        """Notes that records of this file could not be read when their answer was sent."""
        self._reports.failure(failure)
        if len(self._until_ms) >= MOST_FILES:
            self._until_ms.clear()
        self._until_ms[path] = self._loop.now.boot_ms + REFUSED_MS

    def check(self, path: str) -> None:
        """Raises StorageFailure if records of this file are refused."""
        until_ms = self._until_ms.get(path)
        if until_ms is None:
            return
        if self._loop.now.boot_ms < until_ms:
            raise StorageFailure(f"{path} could not be read a moment ago")
        del self._until_ms[path]
