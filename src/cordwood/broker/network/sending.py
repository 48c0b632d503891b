"""The outgoing half of a connection: response frames in, bytes out, in order.

Three promises: only the part of a response that the socket is about to take is in memory; the loop never waits for the
disk; small responses that are ready together cost one write. Records are read from the page cache into a reusable
buffer (`File.read_now`), else the cold-read threads read them (`File.read_cold`). A connection in plain text has a
shorter way for records (`plain_sender.py`); one with TLS must not have it (`tls/sender.py`).
docs/decisions/sending-records.md has the measurements behind these choices and sizes.
"""

import asyncio
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable
from enum import Enum, auto
from typing import TYPE_CHECKING, ClassVar, Final, NamedTuple, Protocol

from cordwood.broker.machine.threads import Workers
from cordwood.broker.network.slice_buffers import SLICE_BYTES, SliceBuffers
from cordwood.broker.network.waiting_answers import WaitingAnswers
from cordwood.model.errors import EnvironmentFailure, StorageFailure

if TYPE_CHECKING:
    from cordwood.log.reading.lookup import LogSlice

JOINED_BYTES: Final = 128 * 1024
"""Small parts are copied together up to this size and written at once."""

SMALL_SLICE_BYTES: Final = 64 * 1024
"""Smaller slices are copied into the response; from this size on sendfile is cheaper."""


class HangUp(NamedTuple):
    """Takes the place of a frame: earlier frames are sent, then the connection is closed."""

    reason: str


class SendingFailed(Exception):
    """The rest of a response whose size has been sent cannot follow: the connection has to be closed."""


class SendingResources:
    """Resources that all senders of one loop share."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        cold_readers: Workers,
        buffer_count: int = 64,
        max_waiting_bytes: int = 2**63 - 1,
    ) -> None:
        self.loop = loop
        self.waiting = WaitingAnswers(max_waiting_bytes, loop.time)
        self.cold_readers = cold_readers
        self.buffers = SliceBuffers(buffer_count)
        self.scratch = memoryview(bytearray(SMALL_SLICE_BYTES))


class Peer(Protocol):
    """The connection, as its sender sees it."""

    def all_sent(self) -> None: ...

    def hung_up(self, reason: str) -> None: ...

    def sending_failed(self, reason: str) -> None: ...

    def records_unreadable(self, path: str, failure: StorageFailure) -> None: ...

    def too_slow(self, reason: str) -> None: ...


class Halt(Enum):
    """The event that sending waits for."""

    TURN = auto()
    """The next turn of the loop, after other connections."""
    SOCKET = auto()
    """The socket has room for more bytes."""
    COLD_READ = auto()
    BUFFER = auto()
    END = auto()
    """No event: the sender is closed or has failed."""


class Sender(ABC):
    """Sends frames in the order in which they were added."""

    turn_bytes: ClassVar[int]
    """After this many bytes the loop serves other connections first, however fast the peer reads."""

    def __init__(self, transport: asyncio.Transport, peer: Peer, resources: SendingResources) -> None:
        self._transport = transport
        self._peer = peer
        self._resources = resources
        self.parts: deque[bytes | LogSlice | HangUp] = deque()
        """Parts that wait to be sent; read-only for others."""
        self._halt: Halt | None = None
        self._transport_full = False
        self._sent_this_turn = 0
        self._sent_of_slice = 0
        self._rest: memoryview | None = None
        """Bytes of the slice that are read and not yet sent, in a buffer of `SliceBuffers`."""
        self.held_bytes = 0
        """Bytes of responses that wait in memory. Records in their files do not count."""
        self.behind_bytes = 0
        """Bytes of responses that are made, and wait for an earlier response. The connection counts them."""
        self._noted = False
        """True if the bytes that wait are counted in the sum over all connections."""
        self.last_progress_s = 0.0
        transport.set_write_buffer_limits(high=0)

    @property
    def busy(self) -> bool:
        """True if parts wait to be sent, or the transport still holds bytes."""
        return bool(self.parts) or self._transport_full

    @property
    def blocked(self) -> bool:
        """True if sending waits for the peer or for the disk."""
        return self._halt is not None or self._transport_full

    def add(self, frame: "bytes | list[bytes | LogSlice] | HangUp") -> None:
        if type(frame) is bytes:
            if frame:
                self.parts.append(frame)
                self.held_bytes += len(frame)
        elif isinstance(frame, list):
            self.parts.extend(frame)
            self.held_bytes += bytes_in_memory(frame)
        else:
            self.parts.append(frame)

    def pump(self) -> None:
        """Sends as much as possible without waiting, and goes on by itself when more is possible."""
        if self._halt is not None or self._transport_full:
            self.note_waiting()
            return
        self._sent_this_turn = 0
        parts = self.parts
        try:
            if len(parts) == 1 and type(parts[0]) is bytes:
                # The usual case: one answer, in memory.
                self._write(self._next_bytes())
            else:
                self._send_parts()
        except (EnvironmentFailure, OSError, SendingFailed) as failure:
            self._fail(failure)
            return
        if not self.parts and not self.blocked:
            if self._noted:
                self.note_waiting()
            self._peer.all_sent()
        else:
            self.note_waiting()

    @property
    def _waits_for_peer(self) -> bool:
        return self._halt is Halt.SOCKET or self._transport_full

    def note_waiting(self) -> None:
        """Counts the bytes that wait for the peer: here, and in the transport."""
        count = 0 if self._halt is Halt.END else self.held_bytes + self.behind_bytes
        if self._transport_full:
            count += self._transport.get_write_buffer_size()
        self._noted = count > 0
        self._resources.waiting.note(self, count)

    def too_slow(self, reason: str) -> None:
        self._noted = False
        self._peer.too_slow(reason)

    def pause_writing(self) -> None:
        self._transport_full = True

    def resume_writing(self) -> None:
        self._transport_full = False
        self.last_progress_s = self._resources.loop.time()
        self.pump()

    def close(self) -> None:
        """Frees all resources: the connection is gone."""
        if self._halt is not Halt.COLD_READ:
            self._resources.buffers.forget(self)
        self._halt = Halt.END
        self.parts.clear()
        self.held_bytes = self.behind_bytes = 0
        if self._noted:
            self._noted = False
            self._resources.waiting.note(self, 0)
        self._rest = None

    # Parts

    def _send_parts(self) -> None:
        parts = self.parts
        gathered: list[bytes] = []
        gathered_bytes = 0
        while parts and self._halt is None and not self._transport_full:
            if self._sent_this_turn + gathered_bytes > self.turn_bytes:
                self._yield()
                break
            part = parts[0]
            if type(part) is bytes:
                data: bytes | None = self._next_bytes()
            elif isinstance(part, HangUp):
                if gathered:
                    self._write(b"".join(gathered))
                    gathered, gathered_bytes = [], 0
                    continue
                self._halt = Halt.END
                self._peer.hung_up(part.reason)
                return
            else:
                assert not isinstance(part, bytes)
                if part.length >= SMALL_SLICE_BYTES:
                    if gathered:
                        self._send_ahead(b"".join(gathered))
                        gathered, gathered_bytes = [], 0
                    else:
                        self._send_slice(part)
                    continue
                data = self._read_small(part)
                if data is None:
                    break
                parts.popleft()
            assert data is not None
            gathered.append(data)
            gathered_bytes += len(data)
            if gathered_bytes >= JOINED_BYTES:
                self._write(b"".join(gathered))
                gathered, gathered_bytes = [], 0
        if gathered:
            self._write(b"".join(gathered))

    def _next_bytes(self) -> bytes:
        data = self.parts.popleft()
        assert type(data) is bytes
        self.held_bytes -= len(data)
        return data

    def _write(self, data: bytes) -> None:
        self._sent_this_turn += len(data)
        self.last_progress_s = self._resources.loop.time()
        self._transport.write(data)

    @abstractmethod
    def _send_ahead(self, data: bytes) -> None:
        """Sends the bytes before a slice."""

    def _read_small(self, part: "LogSlice") -> bytes | None:
        length = part.length
        view = self._resources.scratch[:length]
        if part.file.read_now(part.position, view) == length:
            return bytes(view)
        self._halt = Halt.COLD_READ
        into = memoryview(bytearray(length))
        self._resources.cold_readers.submit(
            lambda: _read_whole(part, into), lambda result: self._small_slice_read(into, result)
        )
        return None

    def _small_slice_read(self, data: memoryview, result: Exception | None) -> None:
        if self._halt is not Halt.COLD_READ:
            return
        if isinstance(result, Exception):
            self._fail(result)
            return
        self.parts[0] = bytes(data)
        self.held_bytes += len(data)
        self._go_on()

    # Slices

    def _send_slice(self, part: "LogSlice") -> None:
        """Sends at most SLICE_BYTES of the slice."""
        if self._rest is None and not self._fill(part):
            return
        if self._rest is not None:
            self._send_rest()
        if self._sent_of_slice == part.length:
            self.parts.popleft()
            self._sent_of_slice = 0
            self._stop_watching()

    def _fill(self, part: "LogSlice") -> bool:
        """Reads bytes into `_rest`. False if sending has to wait."""
        position = part.position + self._sent_of_slice
        wanted = min(part.length - self._sent_of_slice, SLICE_BYTES)
        buffer = self._resources.buffers.take(self, self._resources.loop.time())
        if buffer is None:
            self._halt = Halt.BUFFER
            self._stop_watching()
            return False
        got = part.file.read_now(position, buffer[:wanted])
        if got:
            self._rest = buffer[:got]
            return True
        self._halt = Halt.COLD_READ
        self._stop_watching()
        self._resources.cold_readers.submit(
            lambda: part.file.read_cold(position, buffer[:wanted]), lambda result: self._slice_read(buffer, result)
        )
        return False

    def _slice_read(self, buffer: memoryview, result: int | Exception) -> None:
        if self._halt is not Halt.COLD_READ:
            # The sender was closed during the read. Only now does no thread write into the buffer.
            self._resources.buffers.forget(self)
            return
        if isinstance(result, Exception):
            self._fail(result)
        elif result == 0:
            self._fail(SendingFailed("the file is shorter than it was"))
        else:
            self._rest = buffer[:result]
            self._go_on()

    @abstractmethod
    def _send_rest(self) -> None:
        """Sends some of `_rest`."""

    def _progress(self, sent: int) -> None:
        """Notes bytes of the slice that are sent."""
        self._sent_of_slice += sent
        self._sent_this_turn += sent
        self.last_progress_s = self._resources.loop.time()

    def _rest_sent(self, sent: int) -> None:
        """Gives the buffer back once all of it is sent."""
        assert self._rest is not None
        if sent == len(self._rest):
            self._rest = None
            self._resources.buffers.give_back(self)
        else:
            self._rest = self._rest[sent:]

    # Waiting

    @abstractmethod
    def _stop_watching(self) -> None:
        """Sending waits for something else than the socket now, or for nothing."""

    def _yield(self) -> None:
        self._halt = Halt.TURN
        self._resources.loop.call_soon(self._my_turn)

    def _my_turn(self) -> None:
        if self._halt is Halt.TURN:
            self._go_on()

    def _go_on(self) -> None:
        self._halt = None
        self.pump()

    def _fail(self, failure: Exception) -> None:
        self._halt = Halt.END
        part = self.parts[0] if self.parts else b""
        if isinstance(failure, StorageFailure) and not isinstance(part, bytes | HangUp):
            self._peer.records_unreadable(part.file.path, failure)
        self._peer.sending_failed(str(failure) or type(failure).__name__)

    # The role as the holder of a buffer

    def stalled_since(self) -> float | None:
        return self.last_progress_s if self._rest is not None and self._waits_for_peer else None

    def give_up_buffer(self) -> None:
        self._rest = None
        self._resources.buffers.give_back(self)

    def buffer_is_free(self) -> None:
        self._resources.loop.call_soon(self._buffer_came)

    def _buffer_came(self) -> None:
        if self._halt is Halt.BUFFER:
            self._go_on()


MakeSender = Callable[[asyncio.Transport, Peer, SendingResources], Sender]


def bytes_in_memory(frame: "bytes | list[bytes | LogSlice] | HangUp") -> int:
    """The length of an answer, without records in their files."""
    if isinstance(frame, list):
        return sum(len(part) for part in frame if isinstance(part, bytes))
    return len(frame) if isinstance(frame, bytes) else 0


def _read_whole(part: "LogSlice", into: memoryview) -> None:
    filled = 0
    while filled < part.length:
        got = part.file.read_cold(part.position + filled, into[filled:])
        if got == 0:
            raise SendingFailed("the file is shorter than it was")
        filled += got
