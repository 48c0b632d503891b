"""TLS between a socket and a connection: encrypted bytes at the transport, requests and answers at the connection.

The layer is the protocol of the loop's transport, and the transport of a `Connection`. OpenSSL works on two buffers in
memory (`ssl.MemoryBIO`), so that a connection counts from its accept, the steps of a handshake run in threads, and
write limits stay those of the loop's transport (docs/decisions/tls.md).

A handshake is a few steps: bytes arrive, a thread takes the step while nothing more is read, its bytes leave. A
stranger who begins thousands of handshakes keeps a thread busy, never the loop, and takes turns with other addresses.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import Callable
from contextlib import suppress
from enum import Enum, auto
from typing import TYPE_CHECKING, Any, Final, Protocol, cast

from cordwood.security.sessions import Principal
from cordwood.wire.framing import other_protocol

if TYPE_CHECKING:
    from cordwood.broker.machine.fair_workers import FairWorkers
    from cordwood.security.trail.port import Trail

HANDSHAKE_S: Final = 10.0
"""The time for a handshake."""
ARRIVING_BYTES: Final = 128 * 1024
AT_A_TIME_BYTES: Final = 32 * 1024
"""The bytes that OpenSSL gets at a time, in each direction: it keeps a buffer of the largest piece for as long as the
connection lives."""
_NOTHING: Final = memoryview(b"")
_RECORD_BEGINS: Final = 0x16
"""The first byte of a TLS connection."""


class Above(Protocol):
    """The connection, as its layer sees it."""

    @property
    def client_host(self) -> str: ...

    def connection_made(self, transport: asyncio.BaseTransport) -> None: ...

    def get_buffer(self, sizehint: int) -> memoryview: ...

    def buffer_updated(self, count: int) -> None: ...

    def pause_writing(self) -> None: ...

    def resume_writing(self) -> None: ...

    def eof_received(self) -> bool: ...

    def connection_lost(self, reason: Exception | None) -> None: ...

    def shook_hands(self, principal: Principal | None) -> None: ...

    def close(self, reason: str, level: int = logging.INFO) -> None: ...


class ListenerSide(Protocol):
    """The part of a listener that its connections need."""

    @property
    def name(self) -> str: ...

    @property
    def context(self) -> ssl.SSLContext:
        """The context of the next connection."""

    def principal_of(self, connection: ssl.SSLObject) -> Principal | None:
        """The user whose certificate the peer showed; None: it showed none. Raises ValueError. Runs in a thread."""

    def handshake_failed(self) -> None: ...


class TlsResources:
    """Resources that all layers of one loop share."""

    def __init__(self, loop: asyncio.AbstractEventLoop, threads: FairWorkers, trail: Trail | None = None) -> None:
        self.loop = loop
        self.threads = threads
        self.trail = trail
        self.arriving = memoryview(bytearray(ARRIVING_BYTES))
        """Bytes from a socket, until they are in the buffer of their connection a moment later."""


class _State(Enum):
    WAITING = auto()
    """For the rest of a step of the handshake."""
    STEP = auto()
    """A thread takes a step of the handshake."""
    OPEN = auto()
    CLOSED = auto()


class TlsLayer(asyncio.BufferedProtocol, asyncio.Transport):
    def __init__(self, above: Above, listener: ListenerSide, resources: TlsResources) -> None:
        super().__init__()
        self._above = above
        self._listener = listener
        self._resources = resources
        self._state = _State.WAITING
        self._incoming = ssl.MemoryBIO()
        self._outgoing = ssl.MemoryBIO()
        self._tls: ssl.SSLObject | None = None
        """None: no byte has come yet."""
        self._transport: asyncio.Transport
        self._above_reads = True
        """True unless the connection wants nothing more for now."""
        self._reads = True
        """True unless the loop's transport is paused."""
        self._received = False
        """True if bytes have come."""
        self._limit: asyncio.TimerHandle | None = None
        self._deliver_scheduled = False
        self._ended = False
        """True if the peer sends nothing more."""

    # Calls of the loop's transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._above.connection_made(self)
        if self._above_reads:
            self._begin()

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._resources.arriving

    def buffer_updated(self, count: int) -> None:
        arrived = self._resources.arriving[:count]
        if not self._received:
            self._received = True
            if arrived[0] != _RECORD_BEGINS:
                self._no_tls(bytes(arrived[:4]))
                return
        if self._state is _State.OPEN:
            self._deliver(arrived)
        else:
            self._incoming.write(arrived)
            self._go_on()

    def eof_received(self) -> bool:
        self._ended = True
        if self._state is _State.OPEN:
            self._deliver()
            # A connection that takes nothing for now hears of the end when it goes on.
            return self._state is _State.OPEN
        if self._received and self._state is not _State.CLOSED:
            self._failed("the peer closed the connection before its end")
        return False

    def pause_writing(self) -> None:
        self._above.pause_writing()

    def resume_writing(self) -> None:
        self._above.resume_writing()

    def connection_lost(self, reason: Exception | None) -> None:
        self._end()
        self._above.connection_lost(reason)

    # The handshake

    def _begin(self) -> None:
        """Starts the clock of the handshake. A connection that waits for its turn has not begun."""
        if self._limit is None and self._state is _State.WAITING:
            self._limit = self._resources.loop.call_later(HANDSHAKE_S, self._too_late)

    def _too_late(self) -> None:
        self._failed(f"it took more than {HANDSHAKE_S:g} s")

    def _no_tls(self, beginning: bytes) -> None:
        spoken = other_protocol(beginning)
        if spoken is None and beginning[:2] == b"\0\0":
            spoken = "the Kafka protocol in plain text"
        self._count_failure(f"the peer speaks {spoken or 'no TLS'}")
        self._above.close(
            f"the listener {self._listener.name} takes TLS only, and the peer speaks {spoken or 'no TLS'}: set "
            "security.protocol=SSL, or SASL_SSL where users log in, at the client",
            logging.WARNING,
        )

    def _count_failure(self, reason: str) -> None:
        self._listener.handshake_failed()
        if self._resources.trail is not None:
            self._resources.trail.handshake_failed(self._listener.name, self._above.client_host, reason)

    def _step(self) -> None:
        """Has a thread take the next step of the handshake. Only the thread uses OpenSSL until it is done."""
        self._state = _State.STEP
        self._set_reading()
        self._resources.threads.submit(self._above.client_host, self._handshake, self._stepped)

    def _handshake(self) -> Callable[[], None]:
        """A step, in a thread. Returns the rest, for the loop."""
        if self._state is not _State.STEP:
            return lambda: None  # the connection was closed while the step waited for its turn
        if self._tls is None:
            self._tls = self._listener.context.wrap_bio(self._incoming, self._outgoing, server_side=True)
        try:
            self._tls.do_handshake()
            principal = self._listener.principal_of(self._tls)
        except ssl.SSLWantReadError:
            return self._wait_for_more
        except (ssl.SSLError, ValueError) as error:
            failure = error
            return lambda: self._refuse(failure)
        return lambda: self._finish(principal)

    def _stepped(self, rest: Callable[[], None] | Exception) -> None:
        if self._state is not _State.STEP:
            return
        self._flush()
        if isinstance(rest, Exception):
            raise rest
        rest()

    def _wait_for_more(self) -> None:
        self._state = _State.WAITING
        if self._ended:
            self._failed("the peer closed the connection before its end")
        else:
            self._set_reading()

    def _refuse(self, error: ssl.SSLError | ValueError) -> None:
        from cordwood.broker.network.tls.contexts import handshake_words

        self._failed(handshake_words(error))

    def _failed(self, reason: str) -> None:
        self._state = _State.CLOSED
        self._count_failure(reason)
        self._above.close(f"its TLS handshake at the listener {self._listener.name} failed: {reason}", logging.WARNING)

    def _finish(self, principal: Principal | None) -> None:
        self._state = _State.OPEN
        if self._limit is not None:
            self._limit.cancel()
            self._limit = None
        self._above.shook_hands(principal)
        self._go_on()

    # Reading

    def _go_on(self) -> None:
        """Uses the bytes that have arrived."""
        if self._state is _State.OPEN:
            self._deliver()
        elif self._state is _State.WAITING:
            self._step()

    def _deliver(self, arrived: memoryview = _NOTHING) -> None:
        """Gives the connection what can be decrypted, of earlier bytes and of those that arrived, as long as it takes
        more."""
        above, tls = self._above, self._tls
        assert tls is not None
        # It returns a number of bytes where it is given a buffer.
        read = cast("Callable[[int, memoryview], int]", tls.read)
        more = True
        while more and self._above_reads and self._state is _State.OPEN:
            buffer = above.get_buffer(-1)
            filled = 0
            try:
                while filled < len(buffer):
                    try:
                        count = read(len(buffer) - filled, buffer[filled:])
                    except ssl.SSLWantReadError:
                        if not arrived:
                            more = False
                            break
                        self._incoming.write(arrived[:AT_A_TIME_BYTES])
                        arrived = arrived[AT_A_TIME_BYTES:]
                        continue
                    if not count:
                        self._ended = True
                        more = False
                        break
                    filled += count
            except ssl.SSLError as error:
                above.buffer_updated(0)
                self._broken(error)
                return
            # Without bytes the connection gives its buffer back.
            above.buffer_updated(filled)
        if arrived:
            # The connection goes on with them when it takes more.
            self._incoming.write(arrived)
        self._flush()
        if self._ended and self._state is _State.OPEN and self._above_reads:
            above.eof_received()
            self.close()
        else:
            self._set_reading()

    def _broken(self, error: ssl.SSLError) -> None:
        self._above.close(f"its TLS stream is broken: {error.reason}")

    def _deliver_later(self) -> None:
        self._deliver_scheduled = False
        if self._state is _State.OPEN:
            self._deliver()

    def _set_reading(self) -> None:
        """Reads from the socket only while the connection takes requests, and no thread uses OpenSSL."""
        wanted = self._above_reads and self._state in (_State.WAITING, _State.OPEN) and not self._ended
        if wanted == self._reads or self._state is _State.CLOSED or self._transport.is_closing():
            return
        self._reads = wanted
        if wanted:
            self._transport.resume_reading()
        else:
            self._transport.pause_reading()

    # The transport of the connection

    def write(self, data: Any) -> None:
        """Encrypts and sends. The caller gives pieces of bounded size, and stops at `pause_writing`. OpenSSL gets less
        at a time."""
        if self._state is not _State.OPEN:
            return
        assert self._tls is not None
        encrypted: list[bytes] = []
        whole = memoryview(data)
        try:
            for start in range(0, len(whole), AT_A_TIME_BYTES):
                self._tls.write(whole[start : start + AT_A_TIME_BYTES])
                encrypted.append(self._outgoing.read())
        except ssl.SSLError as error:
            self._broken(error)
            return
        if not self._transport.is_closing():
            self._transport.writelines(encrypted)

    def _flush(self) -> None:
        if self._outgoing.pending and not self._transport.is_closing():
            self._transport.write(self._outgoing.read())

    def pause_reading(self) -> None:
        self._above_reads = False
        self._set_reading()

    def resume_reading(self) -> None:
        self._above_reads = True
        self._begin()
        self._set_reading()
        if self._state is _State.OPEN and not self._deliver_scheduled:
            # Requests may have arrived before the pause.
            self._deliver_scheduled = True
            self._resources.loop.call_soon(self._deliver_later)

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self._transport.set_write_buffer_limits(high, low)

    def get_write_buffer_size(self) -> int:
        return self._transport.get_write_buffer_size()

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return self._transport.get_extra_info(name, default)

    def is_closing(self) -> bool:
        return self._transport.is_closing()

    def close(self) -> None:
        """Tells the peer that nothing follows, and closes once all bytes are sent."""
        if self._state is _State.OPEN:
            assert self._tls is not None
            with suppress(ssl.SSLError):  # the peer's own farewell is not waited for
                self._tls.unwrap()
            self._flush()
        self._end()
        self._transport.close()

    def abort(self) -> None:
        self._end()
        self._transport.abort()

    def _end(self) -> None:
        self._state = _State.CLOSED
        if self._limit is not None:
            self._limit.cancel()
            self._limit = None
