"""A connection in plain text: one call to the system receives a whole answer, or sends a whole request."""

import socket
import struct
from collections.abc import Sequence
from typing import Final

_TIMEVAL: Final = struct.Struct("@ll")


class PlainTransport:
    def __init__(self, connected: socket.socket) -> None:
        self._socket = connected
        self._wait_ms = 0
        """The time that the system lets a call wait; 0: not set yet."""

    def fileno(self) -> int:
        return self._socket.fileno()

    def send(self, parts: Sequence[memoryview]) -> int:
        return self._socket.sendmsg(parts, (), socket.MSG_DONTWAIT)

    def receive(self, memory: memoryview, wait_ms: int) -> int:
        if not wait_ms:
            return self._socket.recv_into(memory, len(memory), socket.MSG_DONTWAIT)
        if wait_ms != self._wait_ms:
            seconds, milliseconds = divmod(wait_ms, 1000)
            value = _TIMEVAL.pack(seconds, milliseconds * 1000)
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, value)
            self._wait_ms = wait_ms
        return self._socket.recv_into(memory, len(memory), socket.MSG_WAITALL)

    def has_ended(self) -> bool:
        try:
            return not self._socket.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT)
        except BlockingIOError:
            return False

    def close(self) -> None:
        self._socket.close()
