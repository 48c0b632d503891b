"""The last appended bytes, in memory, for disks that cannot say which pages are in the page cache.

tmpfs and overlayfs refuse RWF_NOWAIT, so a tailing reader could not be answered in the loop. The bytes of all files
together are bounded: the oldest block is dropped first, whatever its file.
"""

import threading
from collections import deque

from cordwood.records.batch import Buffer

BLOCK_SIZE = 64 * 1024


class Tail:
    """The end of one file, in blocks; all blocks but the last are full."""

    __slots__ = ("blocks", "start")

    def __init__(self, position: int) -> None:
        self.start = position
        self.blocks: deque[bytearray] = deque()


class RecentBytes:
    """The tails of all files of a filesystem."""

    def __init__(self, limit_bytes: int) -> None:
        self.limit_bytes = limit_bytes
        self.used_bytes = 0
        self._live_blocks = 0
        self._order: deque[Tail] = deque()
        """One entry per block, oldest first; entries of forgotten tails are stale."""
        self._lock = threading.Lock()

    def add(self, tail: Tail, data: Buffer) -> None:
        """Adds bytes that were appended to the file."""
        view = memoryview(data)
        with self._lock:
            while view:
                if not tail.blocks or len(tail.blocks[-1]) == BLOCK_SIZE:
                    tail.blocks.append(bytearray())
                    self._order.append(tail)
                    self._live_blocks += 1
                block = tail.blocks[-1]
                part = view[: BLOCK_SIZE - len(block)]
                block += part
                self.used_bytes += len(part)
                view = view[len(part) :]
            while self.used_bytes > self.limit_bytes:
                oldest = self._order.popleft()
                if oldest.blocks:
                    block = oldest.blocks.popleft()
                    oldest.start += len(block)
                    self.used_bytes -= len(block)
                    self._live_blocks -= 1

    def read(self, tail: Tail, position: int, into: memoryview) -> int:
        """Fills `into` from this position of the file on; returns 0 if the bytes are no longer in memory."""
        with self._lock:
            place = position - tail.start
            if place < 0:
                return 0
            got = 0
            number, inside = divmod(place, BLOCK_SIZE)
            while got < len(into) and number < len(tail.blocks):
                part = tail.blocks[number][inside : inside + len(into) - got]
                into[got : got + len(part)] = part
                got += len(part)
                number, inside = number + 1, 0
            return got

    def forget(self, tail: Tail) -> None:
        """Drops the bytes of a file that was cut or closed."""
        with self._lock:
            self.used_bytes -= sum(map(len, tail.blocks))
            self._live_blocks -= len(tail.blocks)
            tail.blocks.clear()
            if len(self._order) > 2 * self._live_blocks + 64:
                self._order = deque(entry for entry in self._order if entry.blocks)
