"""Memory for answers. A large buffer is reused once no view of it is alive, and never before.

Filling fresh memory costs as much as receiving into it: pages have to be found and zeroed. Callers need not release an
answer: a bytearray refuses to change its size while any view of it is alive, numpy and Arrow arrays included.
"""

from typing import Final

REUSED_FROM_BYTES: Final = 64 * 1024
"""Smaller answers get fresh memory, which is cheap."""

KEPT: Final = 4
"""Buffers kept for reuse: one that the caller decodes, one that is arriving, and some slack."""


class ReceiveBuffers:
    def __init__(self) -> None:
        self._kept: list[bytearray] = []

    def forget(self) -> None:
        """Frees the memory that is kept for large answers."""
        self._kept.clear()

    def take(self, size: int) -> memoryview:
        """Memory of `size` bytes, with arbitrary content."""
        if size < REUSED_FROM_BYTES:
            return memoryview(bytearray(size))
        too_small: bytearray | None = None
        for buffer in self._kept:
            if len(buffer) > 4 * size or not _is_free(buffer):
                continue
            if len(buffer) >= size:
                return memoryview(buffer)[:size]
            too_small = buffer
        # The size is rounded up, so that an answer a few bytes longer can use the buffer, too.
        buffer = bytearray(-(-size // REUSED_FROM_BYTES) * REUSED_FROM_BYTES)
        if too_small is not None:
            self._kept.remove(too_small)
        if len(self._kept) < KEPT:
            self._kept.append(buffer)
        return memoryview(buffer)[:size]


def _is_free(buffer: bytearray) -> bool:
    try:
        last = buffer.pop()
    except BufferError:
        return False
    buffer.append(last)
    return True
