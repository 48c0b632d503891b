"""The interface between a connection, which knows requests and answers, and the bytes on a socket."""

from collections.abc import Sequence
from typing import Final, Protocol

MAX_PARTS: Final = 512
"""The most parts that `send` gets at once: the system takes up to 1024."""


class Transport(Protocol):
    """An open socket. Every call may raise OSError; the socket is then of no more use."""

    def fileno(self) -> int: ...

    def send(self, parts: Sequence[memoryview]) -> int:
        """Sends the first bytes of the parts, and returns their number. Raises BlockingIOError if the system takes
        none now: the caller waits until the socket is writable, and calls again with the same parts."""

    def receive(self, memory: memoryview, wait_ms: int) -> int:
        """Receives bytes into the memory, and returns their number: 0 after the last. Waits until the memory is full
        or the time is up, and may return earlier. Raises BlockingIOError if no byte came in time."""

    def has_ended(self) -> bool:
        """True if the peer has closed the connection. Never waits. Only for a connection that expects no bytes."""

    def close(self) -> None: ...
