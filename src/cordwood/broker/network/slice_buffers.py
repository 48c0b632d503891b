"""Memory for records on their way from a file to a socket, when the kernel cannot send them straight from its cache.

A bounded number of buffers is used over and over: fresh buffers of this size cost a page fault per 4 KiB. A connection
holds at most one buffer, and only while the buffer's bytes are being read or sent. A peer that does not read would hold
its buffer for ever. So when other connections wait, a buffer whose peer has taken nothing for a second is taken back;
the bytes are read again when the peer goes on.
"""

from collections import deque
from mmap import mmap
from typing import Final, Protocol

SLICE_BYTES: Final = 512 * 1024
"""The bytes read or sent in one turn: about 0.1 ms of the loop's time. Larger slices save no CPU
(docs/decisions/sending-records.md)."""

STALLED_S: Final = 1.0


class Holder(Protocol):
    """The part of a sender that `SliceBuffers` needs."""

    def stalled_since(self) -> float | None:
        """The time since which the peer has taken no bytes; None if sending does not wait for the peer."""

    def give_up_buffer(self) -> None:
        """Gives the buffer back now."""

    def buffer_is_free(self) -> None:
        """Tells a waiting holder that a buffer is free."""


class SliceBuffers:
    def __init__(self, count: int) -> None:
        assert count > 0
        self._unmade = count
        self._free: list[memoryview] = []
        self._holders: dict[Holder, memoryview] = {}
        self._waiting: deque[Holder] = deque()

    @property
    def lent(self) -> int:
        return len(self._holders)

    def take(self, holder: Holder, now_s: float) -> memoryview | None:
        """A buffer of SLICE_BYTES; None if none is free, and then `buffer_is_free` is called later."""
        assert holder not in self._holders
        if not self._free and self._unmade == 0 and not self._take_back(now_s):
            self._waiting.append(holder)
            return None
        if self._free:
            buffer = self._free.pop()
        else:
            self._unmade -= 1
            buffer = memoryview(mmap(-1, SLICE_BYTES))
        self._holders[holder] = buffer
        return buffer

    def give_back(self, holder: Holder) -> None:
        self._free.append(self._holders.pop(holder))
        if self._waiting:
            self._waiting.popleft().buffer_is_free()

    def forget(self, holder: Holder) -> None:
        """Frees the buffer of a holder that is gone, and its place in the queue."""
        if holder in self._waiting:
            self._waiting.remove(holder)
        if holder in self._holders:
            self.give_back(holder)

    def relieve(self, now_s: float) -> None:
        """Takes buffers back from peers that do not read, for waiting holders. Called now and then."""
        while self._waiting and self._take_back(now_s):
            pass

    def _take_back(self, now_s: float) -> bool:
        for holder in self._holders:
            since = holder.stalled_since()
            if since is not None and now_s - since >= STALLED_S:
                holder.give_up_buffer()
                return True
        return False
