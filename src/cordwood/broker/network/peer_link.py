"""One connection to another broker: frames out and in. `broker/network/peers.py` interprets them."""

import asyncio
import struct
from typing import Final, Protocol, cast

from cordwood.wire.receive_buffers import ReceiveBuffers

_SIZE: Final = struct.Struct(">i")
_ARRIVING_BYTES: Final = 64 * 1024
"""Room for the answers that arrive together."""
_SMALL_ANSWERS: Final = 100
"""After this many answers without a large one, the memory for large answers is given back."""


class LinkOwner(Protocol):
    """The listener of a connection."""

    def answered(self, link: "PeerLink", frame: bytes | memoryview) -> None:
        """Takes an answer. If the frame is a view, its memory is not used again while a part of it is referenced."""

    def lost(self, link: "PeerLink", reason: str) -> None:
        """Notes that the connection is gone."""


class PeerLink(asyncio.BufferedProtocol):
    """One connection: frames out and in.

    Bytes are received into a small buffer. An answer that does not fit is received straight into separate memory, which
    is used again once the answer is no longer referenced: fresh memory costs a page fault for each 4 KiB.
    """

    def __init__(self, owner: LinkOwner, max_answer_bytes: int) -> None:
        self._owner = owner
        self._max_answer_bytes = max_answer_bytes
        self._transport: asyncio.Transport | None = None
        self._arriving = memoryview(bytearray(_ARRIVING_BYTES))
        self._arrived = 0
        """Bytes in `_arriving` that belong to no frame yet."""
        self._buffers = ReceiveBuffers()
        self._large: memoryview | None = None
        """The answer that does not fit into `_arriving`."""
        self._filled = 0
        self._small_in_a_row = 0
        self._asked: asyncio.Future[bytes] | None = None
        """The answer that `ask` waits for."""
        self.lost: str | None = None
        """The reason why the connection is gone; None: it is not."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def write(self, data: bytes) -> None:
        assert self._transport is not None
        self._transport.write(data)

    async def ask(self, data: bytes) -> bytes:
        """Writes a request, and waits for its answer. No other request may be without an answer. Raises
        ConnectionError."""
        if self.lost is not None:
            raise ConnectionError(self.lost)
        self._asked = asyncio.get_running_loop().create_future()
        self.write(data)
        return await self._asked

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    def get_buffer(self, sizehint: int) -> memoryview:
        if self._large is not None:
            return self._large[self._filled :]
        return self._arriving[self._arrived :]

    def buffer_updated(self, count: int) -> None:
        large = self._large
        if large is not None:
            self._filled += count
            if self._filled == len(large):
                self._large = None
                self._take(large)
            return
        self._arrived += count
        start, arrived = 0, self._arrived
        while arrived - start >= _SIZE.size:
            (size,) = _SIZE.unpack_from(self._arriving, start)
            if not 0 <= size <= self._max_answer_bytes:
                self.abort()
                self.connection_lost(ConnectionError(f"an answer of {size} bytes"))
                return
            begin = start + _SIZE.size
            if begin + size > arrived:
                if _SIZE.size + size > _ARRIVING_BYTES:
                    self._large = self._buffers.take(size)
                    self._filled = arrived - begin
                    self._large[: self._filled] = self._arriving[begin:arrived]
                    start = arrived
                break
            start = begin + size
            self._take(bytes(self._arriving[begin:start]))
        self._arrived = arrived - start
        if start and self._arrived:
            self._arriving[: self._arrived] = bytes(self._arriving[start:arrived])

    def _take(self, frame: bytes | memoryview) -> None:
        if len(frame) >= _ARRIVING_BYTES:
            self._small_in_a_row = 0
        else:
            self._small_in_a_row += 1
            if self._small_in_a_row == _SMALL_ANSWERS:
                self._buffers.forget()
        asked, self._asked = self._asked, None
        if asked is None:
            self._owner.answered(self, frame)
        elif not asked.done():
            asked.set_result(bytes(frame))

    def connection_lost(self, reason: Exception | None) -> None:
        if self.lost is not None:
            return
        self.lost = str(reason) if reason is not None else "the broker closed it"
        asked, self._asked = self._asked, None
        if asked is not None and not asked.done():
            asked.set_exception(ConnectionError(self.lost))
        self._owner.lost(self, self.lost)
