"""A connection over TLS. OpenSSL works on two buffers in memory (`ssl.MemoryBIO`), and the socket stays a plain one.

An `ssl.SSLSocket` asks the system twice for each 16 KiB, and has neither MSG_DONTWAIT nor MSG_PEEK.
"""

import select
import socket
import ssl
import time
from collections.abc import Callable, Sequence
from typing import Final, cast

from cordwood.client.transports.contexts import failure_words

_ARRIVING_BYTES: Final = 256 * 1024
_AT_A_TIME_BYTES: Final = 128 * 1024
"""The bytes that OpenSSL gets to encrypt at a time."""
_RECORD_TYPES: Final = frozenset({0x15, 0x16})
"""The first byte of a peer that speaks TLS: an alert, or a handshake."""


class NoTls(OSError):
    """The peer does not speak TLS."""


class TlsTransport:
    def __init__(self, connected: socket.socket, context: ssl.SSLContext, host: str, deadline_s: float) -> None:
        """Takes the handshake to its end. Raises TimeoutError at the deadline, ssl.SSLError, NoTls, or OSError."""
        self._socket = connected
        self._incoming = ssl.MemoryBIO()
        self._outgoing = ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_hostname=host)
        # It returns a number of bytes where it is given a buffer.
        self._read = cast("Callable[[int, memoryview], int]", self._tls.read)
        self._arriving = memoryview(bytearray(_ARRIVING_BYTES))
        self._unsent = memoryview(b"")
        """Encrypted bytes that the system has not taken yet."""
        self._encrypted_of = 0
        """The number of the caller's bytes that are in `_unsent`."""
        self._shake_hands(deadline_s)

    def fileno(self) -> int:
        return self._socket.fileno()

    # The handshake.

    def _shake_hands(self, deadline_s: float) -> None:
        is_first = True
        while True:
            try:
                self._tls.do_handshake()
            except ssl.SSLWantReadError:
                self._flush_until(deadline_s)
            except ssl.SSLError:
                self._flush_until(deadline_s)  # the peer hears why
                raise
            else:
                self._flush_until(deadline_s)
                return
            count = self._fill(deadline_s)
            if not count:
                raise ConnectionResetError("the broker closed the connection during the handshake")
            if is_first and self._arriving[0] not in _RECORD_TYPES:
                raise NoTls("the broker's first bytes are not TLS")
            is_first = False

    # Sending.

    def send(self, parts: Sequence[memoryview]) -> int:
        if not self._unsent:
            piece = _first_bytes(parts)
            self._tls.write(piece)
            self._encrypted_of = len(piece)
        self._flush()
        taken, self._encrypted_of = self._encrypted_of, 0
        return taken

    def _flush(self) -> None:
        """Sends all that is encrypted. Raises BlockingIOError if the system does not take all of it now."""
        while self._unsent or self._outgoing.pending:
            if not self._unsent:
                self._unsent = memoryview(self._outgoing.read())
            self._unsent = self._unsent[self._socket.send(self._unsent, socket.MSG_DONTWAIT) :]

    def _flush_until(self, deadline_s: float) -> None:
        while True:
            try:
                return self._flush()
            except BlockingIOError:
                self._wait_for(select.POLLOUT, deadline_s)

    # Receiving.

    def receive(self, memory: memoryview, wait_ms: int) -> int:
        deadline_s = time.monotonic() + wait_ms / 1000 if wait_ms else 0.0
        filled, size = 0, len(memory)
        while True:
            try:
                while filled < size:
                    count = self._read(size - filled, memory[filled:])
                    if not count:
                        return filled
                    filled += count
                return filled
            except ssl.SSLWantReadError:
                pass
            except ssl.SSLError as error:
                raise ConnectionAbortedError(failure_words(error)) from error
            try:
                if not self._fill(deadline_s):
                    return filled
            except (BlockingIOError, TimeoutError):
                if filled:
                    return filled
                raise BlockingIOError from None

    def _fill(self, deadline_s: float) -> int:
        """Takes in encrypted bytes: 0 after the last. Raises TimeoutError at the deadline, or, if that is 0.0,
        BlockingIOError at once."""
        while True:
            try:
                count = self._socket.recv_into(self._arriving, _ARRIVING_BYTES, socket.MSG_DONTWAIT)
            except BlockingIOError:
                if not deadline_s:
                    raise
                self._wait_for(select.POLLIN, deadline_s)
                continue
            self._incoming.write(self._arriving[:count])
            if deadline_s and time.monotonic() >= deadline_s:
                raise TimeoutError  # a peer that sends a byte now and then
            return count

    def _wait_for(self, event: int, deadline_s: float) -> None:
        poll = select.poll()
        poll.register(self._socket, event)
        left_s = deadline_s - time.monotonic()
        if left_s <= 0 or not poll.poll(left_s * 1000):
            raise TimeoutError

    def has_ended(self) -> bool:
        unexpected = memoryview(bytearray(1))
        try:
            if self.receive(unexpected, 0):
                raise OSError("the broker sent bytes that nobody asked for")
        except BlockingIOError:
            return False
        return True

    def close(self) -> None:
        self._socket.close()


def _first_bytes(parts: Sequence[memoryview]) -> memoryview | bytes:
    """The first bytes of the parts, as many as OpenSSL gets at a time: small parts share a record."""
    first = parts[0]
    if len(first) >= _AT_A_TIME_BYTES or len(parts) == 1:
        return first[:_AT_A_TIME_BYTES]
    together, size = [], 0
    for part in parts:
        together.append(part[: _AT_A_TIME_BYTES - size])
        size += len(together[-1])
        if size == _AT_A_TIME_BYTES:
            break
    return b"".join(together)
