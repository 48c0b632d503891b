"""Memory for answers. A large buffer is used again once nobody looks at it any more, and never before.

Filling fresh memory costs as much as receiving into it: pages have to be found and zeroed. Nobody has to say when he is
done with an answer, because a bytearray refuses to change its size as long as any view of it lives, which a
numpy or Arrow array made of it is too.
"""

from typing import Final

REUSED_FROM_BYTES: Final = 64 * 1024
"""Smaller answers get memory of their own: that is cheap, and they come in all sizes."""

KEPT: Final = 4
"""One that the caller decodes, one that is arriving, and some slack. An answer beyond these gets memory of its own."""


class ReceiveBuffers:
    def __init__(self) -> None:
        self._kept: list[bytearray] = []

    def take(self, size: int) -> memoryview:
        """So many bytes to write into; their content is whatever was there before."""
        if size < REUSED_FROM_BYTES:
            return memoryview(bytearray(size))
        too_small: bytearray | None = None
        for buffer in self._kept:
            if len(buffer) > 4 * size or not _is_free(buffer):
                continue
            if len(buffer) >= size:
                return memoryview(buffer)[:size]
            too_small = buffer
        # Rounded up, or the next answer, which may be a few bytes longer, could not use it.
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
