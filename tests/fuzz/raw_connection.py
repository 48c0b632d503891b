"""A socket to the broker on which anything can be sent, and what comes back is told apart: an answer, or a close."""

import socket
import struct
from enum import Enum
from types import TracebackType
from typing import Self

ANSWER_WITHIN_S = 60.0
FETCH = 1
PROBE_CORRELATION = 0x50B0
PROBE = struct.pack(">hhih", 18, 0, PROBE_CORRELATION, -1)
"""ApiVersions v0 without a client id: every broker answers it."""


class Outcome(Enum):
    ANSWERED = "answered"
    CLOSED = "closed"
    WAITING = "waiting"


class RawConnection:
    """One connection to `host:port`."""

    def __init__(self, bootstrap: str) -> None:
        host, _, port = bootstrap.rpartition(":")
        self.socket = socket.create_connection((host, int(port)), timeout=ANSWER_WITHIN_S)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._received = bytearray()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        self.socket.close()

    def send(self, data: bytes) -> bool:
        """False if the broker has closed the connection meanwhile."""
        try:
            self.socket.sendall(data)
        except (BrokenPipeError, ConnectionResetError):
            return False
        return True

    def receive_frame(self, within_s: float = ANSWER_WITHIN_S) -> bytes | None:
        """The next response without its size; None if the connection is closed. TimeoutError if neither comes."""
        self.socket.settimeout(within_s)
        while len(self._received) < 4 or len(self._received) < 4 + struct.unpack_from(">i", self._received)[0]:
            try:
                data = self.socket.recv(1 << 16)
            except ConnectionResetError:
                return None
            if not data:
                return None
            self._received += data
        end = 4 + struct.unpack_from(">i", self._received)[0]
        frame = bytes(self._received[4:end])
        del self._received[:end]
        return frame

    def is_closed(self, within_s: float = ANSWER_WITHIN_S) -> bool:
        """Whether the broker closes the connection; whatever it sends before is ignored."""
        try:
            while self.receive_frame(within_s) is not None:
                pass
        except TimeoutError:
            return False
        return True

    def ask(self, frame: bytes) -> bytes | None:
        """The answer to one frame, which is sent with its size."""
        if not self.send(framed(frame)):
            return None
        return self.receive_frame()

    def outcome_of(self, frame: bytes, patience_s: float | None = None) -> Outcome:
        """Sends a frame and then a harmless request: the latter is answered, or the connection is closed. With
        `patience_s` a frame of any API may wait."""
        if not self.send(framed(frame) + framed(PROBE)):
            return Outcome.CLOSED
        # A fetch may ask the broker to wait for very long, and answers leave in order.
        may_wait = patience_s is not None or frame[:2] == struct.pack(">h", FETCH)
        try:
            while True:
                answer = self.receive_frame((patience_s or 0.05) if may_wait else ANSWER_WITHIN_S)
                if answer is None:
                    return Outcome.CLOSED
                if answer[:4] == struct.pack(">i", PROBE_CORRELATION):
                    return Outcome.ANSWERED
        except TimeoutError:
            assert may_wait, f"no answer and no close within {ANSWER_WITHIN_S} s to {frame.hex()}"
            return Outcome.WAITING


def framed(frame: bytes) -> bytes:
    return struct.pack(">i", len(frame)) + frame
