"""Cuts a stream of bytes into frames; the transport receives straight into our memory.

A `FrameReader` belongs to one connection. Its buffers come from a pool that all connections share, so that a connection
at rest holds no memory, and large frames reuse the buffers of earlier ones. A frame is a writable view of a request
without its size prefix; it is valid until the next `get_buffer` or `release` of its reader. "More bytes are needed" is
the end of the iteration, not an exception; a forbidden size is an exception, and the stream is lost.

Memory follows the bytes that have arrived, not the claim of a size prefix: the buffer of a large frame doubles as it
fills. Only a connection that has just delivered a large frame gets as much at once, and only up to EXPECTED_BYTES
before the size of the next frame is known.
"""

from mmap import mmap
from struct import Struct
from typing import Final

from cordwood.wire.encoding.bad_messages import BadRequest, FrameTooLarge, OtherProtocol

_SIZE: Final = Struct(">i")
_PREFIX: Final = 4

BUFFER_BYTES: Final = 128 * 1024
"""Room for one receive of a connection with small requests."""

KEEP_BYTES: Final = 16 * 1024 * 1024

EXPECTED_BYTES: Final = 2 * 1024 * 1024
"""The largest buffer that waits for a frame of unknown size."""


class BufferPool:
    """Memory for receiving, shared by the connections of one loop. Keeps some free buffers and counts lent bytes."""

    def __init__(
        self, *, buffer_bytes: int = BUFFER_BYTES, keep_bytes: int = KEEP_BYTES, plenty_bytes: int = 2**62
    ) -> None:
        """`plenty_bytes`: while more is lent, no connection gets a large buffer for a frame of unknown size."""
        self.buffer_bytes = buffer_bytes
        """The size of an ordinary buffer. Larger buffers are multiples of it."""
        self.lent_bytes = 0
        """Bytes lent to connections now: the number to bound when many large requests arrive at once."""
        self.free_bytes = 0
        self._keep_bytes = keep_bytes
        self._plenty_bytes = plenty_bytes
        self._ordinary: list[memoryview] = []
        self._large: list[memoryview] = []

    def for_expected(self, size: int) -> int:
        """The bytes that a connection takes after a frame of this size."""
        return size if size <= EXPECTED_BYTES and self.lent_bytes < self._plenty_bytes else 0

    def take(self, size: int) -> memoryview:
        """A buffer of at least this many bytes, with arbitrary content."""
        ordinary = self.buffer_bytes
        if size <= ordinary and self._ordinary:
            self.free_bytes -= ordinary
            self.lent_bytes += ordinary
            return self._ordinary.pop()
        size = max(1, -(-size // ordinary)) * ordinary
        found = self._fitting(size) if size > ordinary else None
        if found is None:
            # A mapping, not a bytearray: unused pages cost nothing, and all of them go back with the mapping. A
            # thousand peers that hang up at once each take a buffer that receives nothing.
            found = memoryview(mmap(-1, size))
        else:
            self.free_bytes -= len(found)
        self.lent_bytes += len(found)
        return found

    def _fitting(self, size: int) -> memoryview | None:
        # At most twice the needed size, or the buffer of one huge frame would go on to serve smaller frames.
        sizes = [(len(buffer), place) for place, buffer in enumerate(self._large)]
        fitting = [(length, place) for length, place in sizes if size <= length <= 2 * size]
        return self._large.pop(min(fitting)[1]) if fitting else None

    def give_back(self, buffer: memoryview) -> None:
        size = len(buffer)
        self.lent_bytes -= size
        if self.free_bytes + size > self._keep_bytes:
            return
        self.free_bytes += size
        (self._ordinary if size == self.buffer_bytes else self._large).append(buffer)


class FrameReader:
    """The frames of one connection, in order.

        view = reader.get_buffer()          # the transport writes n bytes into it
        for frame in reader.received(n):    # whole frames; what is left waits for more bytes
            ...
        reader.release()                    # optional: no frame is in use any more

    Iteration may be left and taken up again later (`for frame in reader`), as long as nothing is received in between: a
    connection whose requests have to wait stops reading.
    """

    def __init__(self, max_request_bytes: int, pool: BufferPool) -> None:
        self.max_request_bytes = max_request_bytes
        self.bound = "socket.request.max.bytes"
        """The name of that bound, for messages."""
        self._pool = pool
        self._buffer_bytes = pool.buffer_bytes
        self._buffer: memoryview | None = None
        self._start = 0
        """The end of the bytes that have been handed out as frames."""
        self.unread_bytes = 0
        """The number of unread bytes, of whole frames that wait or of an incomplete frame."""
        self._pending = 0
        """Size with prefix of the frame at `_start`, once it is known and while it is incomplete."""
        self._expected = 0
        """The size, with prefix, of the last large frame, as long as only large frames come."""
        self._failure: BadRequest | None = None

    def get_buffer(self, size_hint: int = -1) -> memoryview:
        """The memory to receive into; never empty. Frames handed out before become invalid."""
        assert self._failure is None, "the stream is lost"
        buffer = self._buffer
        if buffer is None:
            buffer = self._buffer = self._pool.take(self._pool.for_expected(self._expected))
            return buffer
        if not self.unread_bytes:
            self._start = 0
            expected = self._pool.for_expected(self._expected)
            if len(buffer) < expected or (expected == 0 and len(buffer) > self._buffer_bytes):
                buffer = self._move_to(self._pool.take(expected))
            return buffer
        assert self._pending or self.unread_bytes < _PREFIX, "frames are waiting to be taken"
        if self._pending > self._buffer_bytes:
            return self._room_for_large()
        if self._start + max(self._pending, _PREFIX) > len(buffer):
            self._move_to(buffer)
        return buffer[self._start + self.unread_bytes :]

    def received(self, count: int) -> "FrameReader":
        """Takes note of `count` bytes in the buffer. Returns the frames that are complete now."""
        self.unread_bytes += count
        return self

    def __iter__(self) -> "FrameReader":
        return self

    def __next__(self) -> memoryview:
        start, unread_bytes = self._start, self.unread_bytes
        if unread_bytes < _PREFIX:
            raise StopIteration
        if self._failure is not None:
            raise self._failure
        assert self._buffer is not None
        (size,) = _SIZE.unpack_from(self._buffer, start)
        if not 0 <= size <= self.max_request_bytes:
            raise self._fail(size, bytes(self._buffer[start : start + _PREFIX]))
        size += _PREFIX
        if size > unread_bytes:
            self._pending = size
            raise StopIteration
        self._pending = 0
        self._expected = size if size > self._buffer_bytes else 0
        self._start = frame_end = start + size
        self.unread_bytes = unread_bytes - size
        return self._buffer[start + _PREFIX : frame_end]

    @property
    def wanted_bytes(self) -> int:
        """The size of the frame that is arriving if the next bytes of it need a larger buffer; else 0."""
        pending = self._pending
        if pending <= self._buffer_bytes or self._buffer is None:
            return 0
        capacity = len(self._buffer) - self._start
        is_needed = self.unread_bytes == capacity or capacity < pending <= self._expected
        return pending if is_needed else 0

    def release(self) -> None:
        """Gives the buffer back if nothing is waiting in it. Frames handed out before are void now."""
        if self._buffer is not None and not self.unread_bytes:
            self._pool.give_back(self._buffer)
            self._buffer = None
            self._start = 0

    def close(self) -> None:
        """Frees the buffer: the connection is gone."""
        self.unread_bytes = 0
        self.release()

    def _room_for_large(self) -> memoryview:
        # Only up to the frame's end: later bytes would have to be moved to the front of the next buffer.
        assert self._buffer is not None
        buffer, arrived = self._buffer, self.unread_bytes
        capacity = len(buffer) - self._start
        if arrived == capacity or (capacity < self._pending <= self._expected):
            wanted = min(self._pending, max(2 * arrived, self._expected, 2 * self._buffer_bytes))
            if wanted <= len(buffer):
                buffer = self._move_to(buffer)
            else:
                buffer = self._move_to(self._pool.take(wanted))
        return buffer[self._start + arrived : self._start + self._pending]

    def _move_to(self, target: memoryview) -> memoryview:
        assert self._buffer is not None
        start, arrived = self._start, self.unread_bytes
        target[:arrived] = self._buffer[start : start + arrived]
        self._start = 0
        if target is not self._buffer:
            self._pool.give_back(self._buffer)
            self._buffer = target
        return target

    def _fail(self, size: int, prefix: bytes) -> BadRequest:
        if (protocol := other_protocol(prefix)) is not None:
            self._failure = OtherProtocol(protocol)
        elif size < 0:
            self._failure = BadRequest(f"A request has the size {size}.")
        else:
            self._failure = FrameTooLarge(
                f"A request of {size} bytes is larger than {self.bound} ({self.max_request_bytes})."
            )
        return self._failure


TLS: Final = "TLS"
HTTP: Final = "HTTP"
SSH: Final = "SSH"
_HANDSHAKE: Final = b"\x16\x03"
"""The first bytes of a TLS connection: a handshake, of any version since SSL 3."""
_BEGINNINGS: Final = {
    **dict.fromkeys((b"GET ", b"POST", b"PUT ", b"HEAD", b"DELE", b"OPTI", b"PATC", b"CONN", b"PRI "), HTTP),
    b"SSH-": SSH,
}
REMEDIES: Final = {
    TLS: "Set security.protocol=PLAINTEXT at the client",
    HTTP: "Metrics and health are served over HTTP, at metrics.listener",
    SSH: "Look for a scan of ports, or a wrong address",
}


def other_protocol(prefix: bytes) -> str | None:
    """The protocol that begins with these four bytes; None if it is not known. As a size prefix the bytes would mean a
    request of hundreds of megabytes."""
    return TLS if prefix.startswith(_HANDSHAKE) else _BEGINNINGS.get(prefix)
