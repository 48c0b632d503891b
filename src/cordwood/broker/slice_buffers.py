"""Memory for records on their way from a file to a socket, when the kernel cannot send them straight from its cache.

A bounded number of buffers, used over and over: fresh ones of this size cost a page fault per 4 KiB. A connection
holds at most one, and only while its bytes are being read or sent. A peer that does not read would hold its buffer for
ever, so when others wait, a buffer whose peer has taken nothing for a second is taken back; its bytes are read again
when the peer goes on.
"""

from collections import deque
from mmap import mmap
from typing import Final, Protocol

SLICE_BYTES: Final = 512 * 1024
"""What is read or sent in one turn: about 0.1 ms of the loop's time. Larger slices save no CPU (docs/decisions/)."""

STALLED_S: Final = 1.0


class Holder(Protocol):
    """A sender, as far as buffers are concerned."""

    def stalled_since(self) -> float | None:
        """Since when the peer has taken nothing of the buffer; None if it is not the peer that is waited for."""

    def give_up_buffer(self) -> None:
        """Gives the buffer back now."""

    def buffer_is_free(self) -> None:
        """A buffer that was asked for in vain can be had now."""


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
        """A buffer of SLICE_BYTES; None if there is none, and then `buffer_is_free` will be called."""
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
        """The holder is gone: nothing of it is held or waits any more."""
        if holder in self._waiting:
            self._waiting.remove(holder)
        if holder in self._holders:
            self.give_back(holder)

    def relieve(self, now_s: float) -> None:
        """To be called now and then: who waits need not wait for peers that do not read."""
        while self._waiting and self._take_back(now_s):
            pass

    def _take_back(self, now_s: float) -> bool:
        for holder in self._holders:
            since = holder.stalled_since()
            if since is not None and now_s - since >= STALLED_S:
                holder.give_up_buffer()
                return True
        return False
